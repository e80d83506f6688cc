"""The verbs that make a request to a run: approve, reject, answer, retry; pause and cancel as well."""
