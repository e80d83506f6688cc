"""The planner, the workers, their tools, the model client and the simulated model."""
