"""The read model: the values that all UIs show of a run.

Imports the core. `base_view.py` writes views as JSON.
"""
