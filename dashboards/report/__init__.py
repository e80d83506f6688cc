"""The report of a run: `figures` from facts, `document` from figures, and three ways to write it down."""
