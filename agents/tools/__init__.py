"""What a model may do: the tools of workers and planners and their registry, and tools of MCP servers."""
