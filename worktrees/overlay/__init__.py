"""Leases made of overlay mounts: shared base layers below, the worker's changes above.

Imports every room of the worktrees except `pool` and `leases`.
"""
