"""The command line. Every verb imports what it needs when it runs, so that `fleet --help` answers at once."""

from fleet.cli.verbs import main

__all__ = ["main"]
