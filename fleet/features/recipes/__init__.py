"""Recipes: the commands and settings that a project's tests need to pass in the sandbox.

Detection is pure: files in, candidates out. The contents of files are untrusted data. Only `trials.py` reads a checkout
and runs commands.
"""
