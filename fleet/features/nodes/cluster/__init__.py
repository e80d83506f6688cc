"""Machines of a Ray cluster as nodes. Only a program beside the manager (`bridge.py`) and the machines import Ray."""
