"""A run that this program works on or shows: its engine, screens and metrics.

May import everything; only `fleet.cli` imports it.
"""
