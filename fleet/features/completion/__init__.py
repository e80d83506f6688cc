"""Prints and installs shell completion. The verbs provide the completed names."""
