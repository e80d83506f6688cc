"""The loop of a run: it records what is reported, decides what follows and carries out each command (`perform.py`).

Enters `fleet.core` and `fleet.ports`. Knows no adapter, file format or screen.
"""
