"""Servers of the Model Context Protocol, whose tools workers have."""
