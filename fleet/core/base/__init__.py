"""Identifiers, token usage and repository paths. All other parts of the core use them."""
