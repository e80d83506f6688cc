"""Git in one repository: `repository.py` is the door for objects, diffs, merges and refs, `program.py` for all else.

May import `base`. Callers never choose between git in process and the git program.
"""
