"""A limit on how many do something at once, which some wait for less long than others."""

from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from anyio import CapacityLimiter, Event, create_task_group
from anyio.lowlevel import RunVar, checkpoint

Turn = AbstractAsyncContextManager[None]
"""Waits until it may begin, and counts until its end."""


class Turns:
    """As many turns at once as there are places. Of those that wait, the first class goes first, then the oldest."""

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
        if self._free:  # then no one waits
            self._free -= 1
            return
        mine, has_begun = Event(), False
        waiting.append(mine)
        try:
            await mine.wait()
            has_begun = True
        finally:
            if not has_begun and mine.is_set():  # the place was ours already when we were cancelled
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
# Small helpers for tasks: a limit for each event loop, and a task beside a block.


def loop_limiter(variable: RunVar[CapacityLimiter | None], total: int) -> CapacityLimiter:
    """The limiter that `variable` holds for this event loop, made on first use: no two loops can share one."""
    limiter = variable.get(None)
    if limiter is None:
        limiter = CapacityLimiter(total)
        variable.set(limiter)
    return limiter


@asynccontextmanager
async def background(task: Callable[[], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Run a task while the block runs. An error of the block is raised as it is, not in a group of errors."""
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
