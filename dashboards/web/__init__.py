"""The web UI: server-rendered pages, live updates by server-sent events, and decisions as requests to runs."""
