"""Recipes: what a project needs so that its tests pass in the box.

Finding them is pure: files in, candidates out. What the files say is data of strangers. `trials.py` alone reads a
checkout and runs commands.
"""
