"""Checks on commits, and the review of a change before it counts."""
