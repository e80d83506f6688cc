"""Facts, the state they add up to, and what is derived from it: statuses, progress, areas, failures.

Imports `base` and `plans`.
"""
