"""Identifiers, token usage and repository paths, which every other part of the core uses. Imports nothing of ours."""
