"""Runs and forges: an issue as the epic of a run, its result as pull requests."""
