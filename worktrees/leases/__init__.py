"""Worktrees for the engine and the command line: leases, commits and cleanup.

Imports all other packages of `worktrees`.
"""
