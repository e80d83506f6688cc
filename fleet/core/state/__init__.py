"""The state computed from facts, and values derived from it: statuses, progress, areas, machines.

Imports `base`, `plans` and `facts`.
"""
