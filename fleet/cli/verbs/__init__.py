"""The verbs of the command line, in modules by subject.

May import everything; only `fleet.cli` imports them.
"""
