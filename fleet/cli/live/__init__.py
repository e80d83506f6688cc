"""A run that this program works on or shows: its engine and screens.

May import everything; only `fleet.cli` imports it.
"""
