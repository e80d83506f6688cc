"""A run: its status, limits, subtasks and incidents, and the answer to a request."""
