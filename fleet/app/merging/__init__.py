"""A result brought into a branch of the user's, on top of what it has if it has moved."""
