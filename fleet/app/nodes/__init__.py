"""Both ends of the nodes put together: what a manager connects to, and what `fleet node` runs."""
