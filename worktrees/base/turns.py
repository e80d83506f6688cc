"""A limit on how many do something at once, which some wait for less long than others."""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from anyio import Event
from anyio.lowlevel import checkpoint

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
