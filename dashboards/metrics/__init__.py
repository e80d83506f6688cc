"""Metrics for Prometheus: listed in `catalog`, counted in `tally`, read from states in `gauges`, served by `server`."""
