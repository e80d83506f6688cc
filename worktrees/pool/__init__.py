"""Leases made of registered worktrees, for machines that cannot mount overlays.

Imports every room of the worktrees except `overlay` and `leases`.
"""
