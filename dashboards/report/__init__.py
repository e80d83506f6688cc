"""The report of a run: `report_data` from facts, `document` from the data, and HTML or Markdown from the document."""
