"""When a process that works on a run looks for garbage."""

import gc

COLLECTED = (20_000, 10, 10)
"""Objects made and not freed until the youngest are looked at, and how often that happens until older ones are."""


def collect_rarely() -> None:
    """Have the garbage collector look less often, and never at what is loaded once: that stops all calls for 100 ms.

    A run's state holds no cycles and only grows. Looking at all of it each time that it had grown by a quarter took
    half of the engine's processor time in a run of 10,000 subtasks.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTED)
