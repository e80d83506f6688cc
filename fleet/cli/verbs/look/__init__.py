"""The verbs that only read a run: watch, runs, status, show, logs, diff."""
