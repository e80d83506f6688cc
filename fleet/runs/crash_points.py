"""Moments at which a run may be cut off: each journal write and each step that leaves something in git or on the disk.

In a real run there is no listener, and a point costs the check of one variable. The kill tests (`chaos/kill.py`) set
one that ends the process at a point: its name must be true both just before and just after the moment.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_listener: Callable[[str], None] | None = None


def reached(point: str) -> None:
    """Report that this moment has come."""
    if _listener is not None:
        _listener(point)


@contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """Call a listener at every point for as long as the block lasts, whichever thread reaches it."""
    global _listener  # noqa: PLW0603 - one process runs one run
    _listener, before = listener, _listener
    try:
        yield
    finally:
        _listener = before
