"""Calls that are made at the same time."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from anyio import create_task_group

Result = TypeVar("Result")


async def run_side_by_side(calls: Sequence[Callable[[], Awaitable[Result]]]) -> list[Result]:
    """Run all calls at the same time; return their results in order."""
    results: dict[int, Result] = {}

    async def run(index: int) -> None:
        results[index] = await calls[index]()

    async with create_task_group() as tasks:
        for index in range(len(calls)):
            tasks.start_soon(run, index)
    return [results[index] for index in range(len(calls))]
