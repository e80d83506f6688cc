"""The worktrees as the engine and the command line use them: leases, commits and clean-up.

Imports every other room of the worktrees.
"""
