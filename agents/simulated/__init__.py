"""The simulated model: an HTTP server that speaks the Messages API and plays planner and workers from a script.

Everything but the thinking is real: it answers with tool calls, and whoever asked carries them out. It shares no code
with the real model's client, so that a mistake in one can't hide behind the same mistake in the other.
"""
