"""The hands: git, worktrees, the box that commands run in, checks, and the integration branch."""
