"""Recipes: what a project needs so that its tests pass in the box. Pure: files in, candidates out.

Nothing here reads a file or runs a command: `fleet/app/init.py` does both. What the files say is data of strangers.
"""
