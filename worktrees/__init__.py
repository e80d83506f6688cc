"""Git, worktrees and leases, the box that commands run in, checks, and the integration branch."""
