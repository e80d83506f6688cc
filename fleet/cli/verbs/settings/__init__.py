"""The verbs about plans and settings: plans, try, init, config, explain-policy."""
