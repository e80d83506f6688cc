"""Python's garbage collector, kept away from what is loaded once and stays.

A full collection looks at every object there is: with the SDK loaded that takes a hundred milliseconds, in which no
conversation goes on. What is there when a run begins is put aside, and later collections look only at what came since.
"""

import gc


def settle() -> None:
    """Call it once everything is loaded."""
    gc.collect()
    gc.freeze()
