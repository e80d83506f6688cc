"""The verbs about the result of a run: merge, report, audit, commits."""
