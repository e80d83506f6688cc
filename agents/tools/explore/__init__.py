"""The read-only tools with which the planner explores a repository."""
