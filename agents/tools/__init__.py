"""The tools of workers and planners, their registry, and tools of MCP servers."""
