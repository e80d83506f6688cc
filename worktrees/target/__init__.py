"""The user's repository: what it is before a run, its checkouts, and the few moments at which it changes.

Imports `base` and `git`. The store is made from it.
"""
