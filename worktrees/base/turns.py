"""A concurrency limit with priorities."""

from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from anyio import CapacityLimiter, Event, create_task_group
from anyio.lowlevel import RunVar, checkpoint

Turn = AbstractAsyncContextManager[None]
"""Waits for its turn, and counts until its end."""


class Turns:
    """Limits how many callers run at the same time. The first class goes first, then the oldest."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: tuple[deque[Event], deque[Event]] = (deque(), deque())

    @asynccontextmanager
    async def turn(self, *, first: bool = False) -> AsyncIterator[None]:
        await self._begin(self._waiting[not first])
        try:
            yield
        finally:
            self._end()

    async def _begin(self, waiting: deque[Event]) -> None:
        await checkpoint()
        if self._free:  # no one waits then
            self._free -= 1
            return
        mine, has_begun = Event(), False
        waiting.append(mine)
        try:
            await mine.wait()
            has_begun = True
        finally:
            if not has_begun and mine.is_set():  # we already had the place when we were cancelled
                self._end()
            elif not has_begun:
                waiting.remove(mine)

    def _end(self) -> None:
        for waiting in self._waiting:
            if waiting:
                waiting.popleft().set()
                return
        self._free += 1


# ---- tasks -----------------------------------------------------------------------------------------------------------
# Helpers for tasks: a limit for each event loop, and a background task for a block.


def loop_limiter(variable: RunVar[CapacityLimiter | None], total: int) -> CapacityLimiter:
    """Return the limiter in `variable` for this event loop, created on first use: two loops can't share one."""
    limiter = variable.get(None)
    if limiter is None:
        limiter = CapacityLimiter(total)
        variable.set(limiter)
    return limiter


@asynccontextmanager
async def background(task: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Run a task while the block runs. Raises an error of the block directly, not in a group of errors."""
    try:
        async with create_task_group() as group:
            group.start_soon(task)
            yield
            group.cancel_scope.cancel()
    except BaseExceptionGroup as errors:
        first, *others = errors.exceptions
        if others:
            raise
        raise first from first.__cause__
