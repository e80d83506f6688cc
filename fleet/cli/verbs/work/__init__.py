"""The verbs that start, continue, limit and replay runs: plan, run, rehearse, resume, limits."""
