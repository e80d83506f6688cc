"""A full disk is not a failure of a subtask: the run stops with a message, and loses nothing."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from fleet.engine.adapters import Adapters
from fleet.engine.internal_errors import DiskFullError
from fleet.runs.run_folder import disk_full_advice
from tests.fleet.core.story import plan_of
from tests.fleet.fakes import FakeFleet


async def test_a_full_disk_fails_no_subtask_and_stops_the_run_with_a_message() -> None:
    """With room made, all of it is wanted again, and what was finished is not done over."""
    why: str | None = "the disk of /state is full (0 MB free): free some space"

    class Small(FakeFleet):
        def world(self) -> Adapters:
            return replace(super().world(), disk_full=lambda said: why if "no room" in said else None)

    fleet = Small(plan_of("a"))
    fleet.worktrees.broken_checks["c-a-1"] = 1
    with pytest.raises(BaseExceptionGroup) as stopped:
        await fleet.run()
    assert stopped.group_contains(DiskFullError, match="free some space, then run `fleet resume .*No work is lost")
    assert [fact for fact in fleet.memory.facts if fact.kind == "attempt_failed"] == []
    why = None
    state = await fleet.run()
    assert (state.ending, fleet.worker.tried()["a"], tuple(state.incidents)) == ("landed", 1, ())


def test_a_disk_is_full_where_the_machine_says_so(tmp_path: Path) -> None:
    assert disk_full_advice(tmp_path, "git failed: not a repository") is None
    said = disk_full_advice(tmp_path, f"git failed: {os.strerror(errno.ENOSPC)}")
    assert said is not None
    assert str(tmp_path) in said
    assert disk_full_advice(tmp_path / "gone", os.strerror(errno.ENOSPC)) is None
