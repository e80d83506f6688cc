"""Minds: the planner, the workers, their tools and the client that speaks to the models."""
