"""The state as planners, scripts and people read it. `base_view.py` writes every view as JSON.

Imports `base`, `plans`, `state` and `policy`.
"""
