"""What is known of a pull request is whole on disk, and one process at a time works with it."""

import fcntl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio import create_task_group, fail_after, wait_all_tasks_blocked

from fleet.errors import FleetError, UsageError
from fleet.features.forge.tending import Record, RecordFile, Round

NAME = "gh:acme/shop#1"


def test_a_record_is_read_back_and_a_damaged_one_is_said(tmp_path: Path) -> None:
    file = RecordFile(tmp_path / "tending", 1)
    assert file.read(NAME) == Record(pull=NAME)
    record = Record(pull=NAME).with_round(Round(number=1, run="r-pr1-1", head="a"))
    file.write(record)
    assert file.read(NAME) == record
    with pytest.raises(FleetError, match="belongs to gh:acme/shop#1, not gh:acme/other#1"):
        file.read("gh:acme/other#1")
    file.path.write_text("{", encoding="utf-8")
    with pytest.raises(FleetError, match="can't be read"):
        file.read(NAME)


def test_a_round_is_replaced_and_forgotten_by_its_number() -> None:
    first, second = Round(number=1, run="a", head="a", is_done=True), Round(number=2, run="b", head="b")
    record = Record(pull=NAME).with_round(first).with_round(second)
    assert record.open_round == second
    assert record.with_round(second.model_copy(update={"is_done": True})).open_round is None
    assert record.without_round(2).rounds == (first,)


async def test_a_second_process_is_refused(tmp_path: Path) -> None:
    file = RecordFile(tmp_path, 1)
    async with file.held():
        with pytest.raises(UsageError, match="is already tending this pull request"):
            async with file.held():
                pass
    async with file.held():
        pass


@pytest.fixture
def orphan(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A call that has the lock by inheritance, as `gh` has after a kill of the process that started it."""
    with (tmp_path / "1.calls").open("a") as calls:
        fcntl.flock(calls, fcntl.LOCK_EX)
        process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=(calls.fileno(),))
    with process:
        yield process


async def test_who_takes_over_waits_for_a_call_that_outlived_its_fleet(
    tmp_path: Path, orphan: subprocess.Popen[bytes]
) -> None:
    taken: list[bool] = []

    async def take_over() -> None:
        async with RecordFile(tmp_path, 1).held():
            taken.append(True)

    with fail_after(60):
        async with create_task_group() as tasks:
            tasks.start_soon(take_over)
            await wait_all_tasks_blocked()
            assert taken == []
            assert orphan.stdin is not None
            orphan.stdin.close()
    assert taken == [True]
