"""Points at which a kill may interrupt a run: each journal write, and each step that changes git or the disk.

A real run has no listener, so a point only checks one variable. The kill tests (`chaos/kill.py`) set a listener that
ends the process at a point. The name of a point must be true both just before and just after the moment.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_listener: Callable[[str], None] | None = None


def reached(point: str) -> None:
    """Report that the run has reached a point."""
    if _listener is not None:
        _listener(point)


@contextmanager
def listening(listener: Callable[[str], None]) -> Iterator[None]:
    """Call a listener at every point in any thread, while the block is open."""
    global _listener  # noqa: PLW0603 - one process runs one run
    _listener, before = listener, _listener
    try:
        yield
    finally:
        _listener = before
