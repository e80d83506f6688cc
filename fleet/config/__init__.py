"""Configuration: one frozen tree made of defaults, files, environment and flags, with the origin of each value.

May import `fleet.core.base`, and `fleet.core.plans` for the limits that a run records. Only `environment.py` reads the
environment of the process.
"""
