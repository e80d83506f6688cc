"""Plan an epic, run a hundred workers in worktrees, land what is green."""

__version__ = "0.1.0"
