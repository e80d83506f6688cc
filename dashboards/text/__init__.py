"""Runs, plans and events as plain text, for the command line, the terminal UI and the report.

May import `fleet.core`. The command line and the other dashboards import it.
"""
