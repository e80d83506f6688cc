"""The verbs of the command line, a folder for each group of `fleet --help`.

May import everything; only `fleet.cli` imports them.
"""
