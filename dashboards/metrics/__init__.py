"""Figures for Prometheus: named in `catalog`, counted in `tally`, taken from states in `gauges`, and served."""
