"""Plan an epic, run a hundred workers in worktrees, and land changes that pass their tests."""

__version__ = "0.1.0"
