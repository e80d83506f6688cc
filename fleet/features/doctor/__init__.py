"""Checks whether this machine can run fleet, and suggests a fix for each problem."""
