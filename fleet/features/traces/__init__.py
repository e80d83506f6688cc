"""Runs as OpenTelemetry traces, printed or sent to a collector during the run."""
