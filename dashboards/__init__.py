"""Dashboards: the terminal UI, metrics, the report, and the plain text of the command line. They only read."""
