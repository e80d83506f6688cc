"""The state that facts add up to, and what is derived from it: statuses, progress, areas, machines.

Imports `base`, `plans` and `facts`.
"""
