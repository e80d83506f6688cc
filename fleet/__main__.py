"""`python -m fleet`."""

from fleet.cli.entry import run_program

run_program()
