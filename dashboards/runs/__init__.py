"""Runs as the terminal UI and the web pages show them: followed, replayed, and what they need from a person."""
