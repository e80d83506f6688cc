"""Prometheus metrics: listed in `catalog`, counted in `tally`, sampled in `gauges`, served by `server`."""
