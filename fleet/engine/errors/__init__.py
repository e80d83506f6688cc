"""Errors of ours: in a step, which may be tried again, and in the loop itself. Imports nothing else of the engine."""
