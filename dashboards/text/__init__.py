"""Runs, plans, events and audits as plain text, for the command line, the terminal UI and the report.

Knows no screen. May import `fleet.core`; the command line and the other dashboards import it.
"""
