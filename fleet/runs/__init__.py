"""The storage of runs: folders, journals and locks, and crash points for tests.

May import `fleet.core`. All code outside the engine reads runs through this package.
"""
