"""Git, worktrees and leases, the sandbox for commands, checks, and the integration branch."""
