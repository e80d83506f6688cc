"""The one read model: what is shown of a run is computed here once, and every face renders it.

Imports the core. `base_view.py` writes every view as JSON.
"""
