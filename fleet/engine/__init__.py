"""The loop of a run: it records what is reported, decides what follows and keeps the wanted effects running.

Enters `fleet.core` and `fleet.ports`. Knows no adapter, file format or screen.
"""
