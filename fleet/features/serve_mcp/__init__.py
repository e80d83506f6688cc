"""`fleet mcp`: fleet as tools for another agent. A thin client of journals, inboxes and the functions of the verbs."""
