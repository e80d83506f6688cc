"""The bare repository of a target: its objects, the refs of its runs, snapshots, repair.

May import `base`, `git` and `target`.
"""
