"""Tending of pull requests: what CI and reviewers say is worked on, pushed, and answered once."""
