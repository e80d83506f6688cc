"""`fleet mcp`: the fleet as tools of another agent. A thin client of journals, inboxes and the verbs' own functions."""
