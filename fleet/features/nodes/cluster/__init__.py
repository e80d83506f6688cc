"""Use the machines of a Ray cluster as nodes. Only `bridge.py` and the machines import Ray, not the manager."""
