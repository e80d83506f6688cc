"""A limit whose places go to the first class first, and otherwise to the one that has waited longest."""

import pytest
from anyio import CancelScope, create_task_group
from anyio.lowlevel import checkpoint

from worktrees.base.turns import Turns

pytestmark = pytest.mark.anyio
FEW = 20  # of the loop's rounds: more than anything here needs


async def settle() -> None:
    for _ in range(FEW):
        await checkpoint()


async def test_as_many_are_in_their_turn_as_there_are_places() -> None:
    turns, inside, most = Turns(3), 0, 0

    async def take(number: int) -> None:
        nonlocal inside, most
        async with turns.turn(first=number % 2 == 0):
            inside += 1
            most = max(most, inside)
            await checkpoint()
            inside -= 1

    async with create_task_group() as group:
        for number in range(50):
            group.start_soon(take, number)
    assert (most, inside) == (3, 0)


async def test_the_first_class_goes_first_and_in_each_class_the_one_that_has_waited_longest() -> None:
    turns, order = Turns(1), list[str]()

    async def take(name: str) -> None:
        async with turns.turn(first=name.startswith("landing")):
            order.append(name)

    async with create_task_group() as group, turns.turn():
        for name in ("attempt 1", "attempt 2", "landing 1", "attempt 3", "landing 2"):
            group.start_soon(take, name)
            await settle()
    assert order == ["landing 1", "landing 2", "attempt 1", "attempt 2", "attempt 3"]


async def test_one_that_is_cancelled_leaves_its_place_to_the_next() -> None:
    turns, order = Turns(1), list[str]()
    waits, is_given = CancelScope(), CancelScope()

    async def take(name: str, scope: CancelScope) -> None:
        with scope:
            async with turns.turn():
                order.append(name)

    async with create_task_group() as group:
        async with turns.turn():
            for name, scope in (("waits", waits), ("is given", is_given), ("last", CancelScope())):
                group.start_soon(take, name, scope)
                await settle()
            waits.cancel()
            await settle()
        is_given.cancel()  # it has the place by now, and has not run yet
    assert order in (["last"], ["is given", "last"])
    async with turns.turn():
        order.append("free again")
    assert order[-2:] == ["last", "free again"]
