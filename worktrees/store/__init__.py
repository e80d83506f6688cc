"""The bare repository of a target, the refs of its runs, and the user's repository that it comes from.

May import `base` and `git`.
"""
