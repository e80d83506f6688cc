"""A run rests in the hours of the day in which it is to start nothing."""

from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import anyio
import pytest

from fleet.cli.engine import due, keep_hours
from fleet.core.base.hours import BY_HOURS, Hours, read_hours
from fleet.core.facts.facts import Paused, Unpaused
from fleet.read.run import just_after
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder
from tests.fleet.core.story import Story, plan_of
from tests.fleet.fakes import wait_until


def test_hours_may_cross_midnight() -> None:
    night, noon = Hours(22 * 60, 7 * 60), read_hours("12:00-13:00")
    assert noon is not None
    hours_of_day = (0, 6, 7, 12, 13, 22)
    assert [hour for hour in hours_of_day if night.cover(at(hour))] == [0, 6, 22]
    assert [hour for hour in hours_of_day if noon.cover(at(hour))] == [12]
    assert read_hours("") is None
    with pytest.raises(ValueError, match="22:00"):
        read_hours("22-7")


def at(hour: float) -> datetime:
    return datetime(2026, 1, 1) + timedelta(hours=hour)  # noqa: DTZ001 - local time


NIGHT = Hours(22 * 60, 7 * 60)


def test_they_began_today_or_yesterday() -> None:
    assert [NIGHT.since(at(hour)) for hour in (22, 23.5, 30, 31, 12)] == [at(22), at(22), at(22), None, None]


def asked(hour: float, *, by: str | None = None, unpaused: float = 0) -> type | None:
    """What is requested of a run that someone has paused, or of one that a person unpaused last at an hour."""
    story = Story(plan=plan_of("one"))
    if by is not None:
        story.happens(Paused(at=0, by=by))
    request = due(just_after(story.state), NIGHT, at(hour), at(unpaused).timestamp())
    return type(request) if request is not None else None


def test_a_run_is_paused_in_the_hours_and_only_then_and_a_person_has_the_last_word() -> None:
    assert (asked(21), asked(22), asked(30), asked(31)) == (None, Paused, Paused, None)
    assert asked(23, unpaused=22.5) is None, "a person has unpaused it meanwhile"
    assert asked(47, unpaused=22.5) is Paused, "the next night"
    assert (asked(23, by="ann"), asked(31, by="ann")) == (None, None), "a person's pause stays"
    assert (asked(23, by=BY_HOURS), asked(31, by=BY_HOURS)) == (None, Unpaused)


async def test_the_requests_go_to_the_run_as_the_clock_says(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs" / "r")
    with Journal.create(folder.journal) as journal:
        journal.append(Story(plan=plan_of("one")).facts)
        clock = [at(21)]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(keep_hours, "22:00-07:00", folder, lambda: clock[0], look_s=0.01))
            for hour, kind in ((22, "paused"), (31, "unpaused")):
                clock[0] = at(hour)
                await wait_until(lambda: bool(journal.requests()))
                [(number, request)] = journal.requests()
                assert isinstance(request, Paused | Unpaused)
                assert (request.kind, request.by) == (kind, BY_HOURS)
                journal.append([request], taken=[number])
            tasks.cancel_scope.cancel()
