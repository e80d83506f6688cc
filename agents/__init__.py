"""The agents: the planner, the workers, their tools, the client that calls the models, and the simulated model."""
