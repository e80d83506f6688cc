"""What is decided next, and what should be running: pure rules over the state, which may change with any version.

Imports `base`, `plans` and `state`.
"""
