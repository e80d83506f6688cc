"""The verbs of the command line, a module for each purpose. May import everything; only `fleet.cli` imports it."""
