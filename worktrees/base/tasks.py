"""Small helpers for tasks: a limit for each event loop, and a task beside a block."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from anyio import CapacityLimiter, create_task_group
from anyio.lowlevel import RunVar


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
