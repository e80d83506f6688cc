"""Git in one repository: `repository.py` for objects, diffs, merges and refs, `program.py` for everything else.

May import `base`. Callers do not choose between git in process and the git program.
"""
