"""Where a run is stored: its folder, its journal and lock, the follower of all journals, and crash points for tests.

Enters `fleet.core`. Everything that reads a run from outside the engine uses this package.
"""
