"""The fleet in a browser: pages rendered here, live by server-sent events, and decisions as requests to runs."""
