"""Calls to models: one request in, one answer or one named fault out."""
