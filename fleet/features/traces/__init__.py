"""A run as a trace of OpenTelemetry: printed, or sent to a collector while the run works."""
