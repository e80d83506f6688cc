"""The map of all subtasks: every one is in it, and the most urgent state wins where there is little room."""

from typing import get_args

import pytest

from dashboards.subtask_map import MARKS, RUN_MARKS
from fleet.core.plans.limits import Policy
from fleet.read.plan_graph import STATES, subtask_map
from fleet.read.run_view import RunStatus
from tests.dashboards.stories import busy_story, wide_story
from tests.fleet.core.story import Story, plan_of


def test_each_subtask_has_a_cell_and_is_counted_once() -> None:
    state = busy_story().state
    shown = subtask_map(state, 80)
    assert (len(shown.cells), shown.each) == (7, 1)
    assert shown.counts == {"asks": 1, "working": 1, "landing": 2, "waiting": 1, "landed": 2}


@pytest.mark.parametrize("room", [1, 7, 80, 299, 300, 1000])
def test_it_never_takes_more_than_its_room(room: int) -> None:
    state = wide_story().state
    shown = subtask_map(state, room)
    assert 0 < len(shown.cells) <= room
    assert sum(shown.counts.values()) == 300
    assert len(shown.cells) * shown.each >= 300


def test_a_cell_of_several_shows_the_most_urgent_state() -> None:
    state = wide_story().state
    assert subtask_map(state, 1).cells == ["failed"]
    assert "failed" in subtask_map(state, 40).cells


def test_nothing_is_under_way_in_a_run_that_no_process_runs() -> None:
    shown = subtask_map(wide_story().state, 300, alive=False)
    assert not {"working", "starting", "checking", "landing", "planning"} & set(shown.counts)
    assert sum(shown.counts.values()) == 300


def test_dropped_subtasks_stay_on_the_map() -> None:
    story = Story(Policy(max_attempts=1), plan_of("a", "b", failure_action="skip"))
    story.attempt_fails("a")
    assert subtask_map(story.state, 10).counts["gone"] == 1


def test_every_state_has_a_sign() -> None:
    assert [name for name in STATES if name not in MARKS] == []


def test_each_status_of_a_run_has_a_sign() -> None:
    assert set(RUN_MARKS) == set(get_args(RunStatus))
