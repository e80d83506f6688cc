"""Forges, where issues and pull requests are: GitHub by the user's `gh`, GitLab by the user's `glab`.

The programs are called by argument list, and authentication stays theirs: nothing here reads or holds a token. What a
forge answers was written by others: it is parsed at this border and kept as it is, and made safe where it is shown.
"""
