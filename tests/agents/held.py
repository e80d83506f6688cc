"""How long the event loop is held: the longest work of one callback while all others waited, in pieces of known work.

Measures processor time, not wall time: a busy machine takes the processor away in the middle of a callback, and no code
is to blame for that. So sleep in a blocking call is not seen here; the linter forbids those (ruff's ASYNC rules).
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from time import thread_time
from typing import Any
from unittest.mock import patch

PIECE = {"messages": [{"role": "user", "content": "x" * 200} for _ in range(500)]}


@dataclass
class Held:
    """What callbacks took, in pieces of work."""

    piece_s: float
    longest: float = 0.0
    by: str = ""
    callbacks: int = 0

    def saw(self, handle: asyncio.Handle, seconds: float) -> None:
        self.callbacks += 1
        if seconds / self.piece_s > self.longest:
            self.longest, self.by = seconds / self.piece_s, repr(handle)


@contextmanager
def held_loop() -> Iterator[Held]:
    """Watches every callback of the loop for as long as the block lasts."""
    held = Held(_piece_s())
    run: Callable[[asyncio.Handle], Any] = asyncio.Handle._run

    def watched(handle: asyncio.Handle) -> None:
        began = thread_time()
        run(handle)
        held.saw(handle, thread_time() - began)

    with patch.object(asyncio.Handle, "_run", watched):
        yield held


def _piece_s() -> float:
    """About a millisecond."""
    times = []
    for _ in range(9):
        began = thread_time()
        json.loads(json.dumps(PIECE))
        times.append(thread_time() - began)
    return median(times)
