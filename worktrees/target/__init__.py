"""The user's repository: its state before a run, its checkouts, and its changes by fleet.

Imports `base` and `git`. The store is created from it.
"""
