"""Finds what a worker changed in a worktree: the scan, an overlay's change set, and what of it git would commit.

May import `base` and `git`.
"""
