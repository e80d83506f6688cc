"""MCP servers that provide tools to workers."""
