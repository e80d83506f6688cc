"""A task beside a block: it ends with the block, and does not change how the block fails."""

import pytest
from anyio import sleep_forever

from fleet.errors import FleetError
from worktrees.base.turns import background


async def test_a_task_ends_with_the_block() -> None:
    ended = list[bool]()

    async def task() -> None:
        try:
            await sleep_forever()
        finally:
            ended.append(True)

    async with background(task):
        assert not ended
    assert ended == [True]


async def test_an_error_of_the_block_is_raised_as_it_is_with_its_cause() -> None:
    error, cause = FleetError("the disk is full"), OSError(28, "no space")
    with pytest.raises(FleetError) as raised:
        async with background(sleep_forever):
            raise error from cause
    assert (raised.value, raised.value.__cause__) == (error, cause)


async def test_an_error_of_the_task_ends_the_block() -> None:
    async def task() -> None:
        raise OSError(28, "no space")

    with pytest.raises(OSError, match="no space"):
        async with background(task):
            await sleep_forever()
