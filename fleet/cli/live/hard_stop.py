"""The second Ctrl-C: it ends this process within a second, whatever it waits for.

A helper that was stopped or waits for a dead disk can hold a thread, and a thread can hold the end of the process. So a
thread of its own ends everything: first the helpers, then this process, as a kill would. A resumed run copes with that.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

from worktrees.base.process import end_descendants

GRACE_S = 0.7  # for a stop in good order
HELPERS_S = 0.2  # for git to remove its locks
EXIT_CODE = 130


@contextmanager
def hard_stop(stops: Sequence[signal.Signals], hint: str) -> Iterator[None]:
    """While the block lasts, one of these signals ends the process soon, besides what it does otherwise.

    For the main thread. An event loop learns of a signal by itself, but only when it turns. `hint` says how to go on.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        end_soon(hint)
        if callable(other := before.get(signal.Signals(number))):
            other(number, frame)

    before = {number: signal.getsignal(number) for number in stops}
    for number in stops:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def after_the_first(number: signal.Signals) -> Iterator[None]:
    """While the block lasts, and until the process ends, the second of these signals ends it soon."""
    other, met = signal.getsignal(number), [0]

    def handle(number: int, frame: FrameType | None) -> None:
        met[0] += 1
        if met[0] > 1:
            end_soon()
        if callable(other):
            other(number, frame)

    if threading.current_thread() is threading.main_thread():
        signal.signal(number, handle)
    try:
        yield
    finally:
        if not met[0] and signal.getsignal(number) is handle:
            signal.signal(number, other)


def end_soon(hint: str = "") -> None:
    """End this process after the grace, unless it has ended by itself."""
    timer = threading.Timer(GRACE_S, end_now, [hint])
    timer.daemon = True
    timer.start()


def end_now(hint: str) -> None:
    end_descendants(HELPERS_S)
    message = f"\nfleet: stopped at once{hint and f'; {hint}'}\n"
    if sys.stderr.isatty():
        message = f"\x1b[?25h{message}"  # the cursor, which live lines hide
    os.write(2, message.encode())
    os._exit(EXIT_CODE)
