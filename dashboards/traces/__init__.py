"""Runs as traces: spans from the journal, sent to a collector in OpenTelemetry's form."""
