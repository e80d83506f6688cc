"""Moments at which a run may be cut off: each journal write and each step that leaves something in git or on the disk.

Nobody listens in a real run, and then a point costs a look at one variable. The tests of kills listen, and end the
process at one of them (`tests/chaos/kill.py`): what a name stands for must be true of both sides of the moment.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_listener: Callable[[str], None] | None = None


def reached(point: str) -> None:
    """This moment has come."""
    if _listener is not None:
        _listener(point)


@contextmanager
def told(listener: Callable[[str], None]) -> Iterator[None]:
    """Tell a listener of every point, as long as the block lasts, whatever thread reaches it."""
    global _listener  # noqa: PLW0603 - one process runs one run
    _listener, before = listener, _listener
    try:
        yield
    finally:
        _listener = before
