"""The loop of a run and what it carries out: effects, planner calls, checks, landing, reservations, recovery.

Enters `fleet.core` and `fleet.ports`. Knows no adapter, file format or screen.
"""
