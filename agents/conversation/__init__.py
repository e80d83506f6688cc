"""Conversations with a model: the tool loop, its history and compaction, and the guards that end it.

Imports `agents.models` and `agents.tools`. The planner and the workers import it.
"""
