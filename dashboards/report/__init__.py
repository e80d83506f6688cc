"""The report of a run, as HTML or Markdown."""
