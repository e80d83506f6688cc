"""A loop whose clock only moves when nothing is left to do: hours of waiting pass at once, in the order they would."""

import asyncio
import heapq
from typing import Any


class TimelessLoop(asyncio.SelectorEventLoop):
    """For what waits for nothing but time. Sockets and threads would be waited for in vain."""

    def __init__(self) -> None:
        super().__init__()
        self._hours = 1000.0
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._hours

    def _run_once(self) -> None:
        timers: list[Any] = self._scheduled  # type: ignore[attr-defined] # the loop's own
        while timers and timers[0]._cancelled:
            self._timer_cancelled_count -= 1  # type: ignore[attr-defined] # the loop's own
            heapq.heappop(timers)._scheduled = False
        if timers and not self._ready:  # type: ignore[attr-defined] # the loop's own
            self._hours = max(self._hours, timers[0]._when)
        super()._run_once()  # type: ignore[misc] # the loop's own


TIMELESS: tuple[str, dict[str, object]] = ("asyncio", {"loop_factory": TimelessLoop})
