"""The state as planners, scripts and people read it, a folder for each subject.

Imports `base`, `plans`, `state` and `policy`. `dump.py` writes every view as JSON.
"""
