"""What a worktree needs besides the files of its commit: the set-up command and included files.

Imports `base`, `changes`, `git`, `sandbox` and `store`.
"""
