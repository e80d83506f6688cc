"""The quick answers of a long run are those of the plain definitions: played with chance, in a pretended world."""

from collections import Counter
from itertools import pairwise

from hypothesis import given

from fleet.core.base.ids import SubtaskId
from fleet.core.history import subtask_sets
from fleet.core.plans.plan import PLANNER
from fleet.core.policy.effects import effects
from fleet.core.policy.requests import is_approved, waiting_for_approval
from fleet.core.state.state import RunState
from fleet.core.state.status import (
    OVER,
    Progress,
    active_areas,
    area_spend,
    for_revision,
    in_charge,
    inside,
    is_active,
    progress,
    ready,
    seen_by,
    status_counts,
    statuses,
    undecided_failures,
)
from fleet.core.state.subtasks import Mark, Set, SubtaskState
from tests.fleet.core.pretend import Pretend
from tests.fleet.core.test_run_properties import steps, worlds


@given(worlds)
def test_sets_hold_what_each_subtask_says_of_itself(world: Pretend) -> None:
    for _ in steps(world):
        state, status = world.state, statuses(world.state, world.now)
        assert ids(state, ready(state, world.now)) == {id_ for id_ in status if status[id_] == "ready"}
        assert ids(state, undecided_failures(state)) == {id_ for id_ in status if status[id_] in {"failed", "blocked"}}
        assert ids(state, state.subtasks.open) == {id_ for id_ in status if status[id_] not in OVER}
        assert ids(state, state.subtasks.waiting) == {id_ for id_ in status if status[id_] in {"waiting", "ready"}}
        assert ids(state, state.subtasks.marked(Mark.UNDERWAY)) == {s.id for s in all_(state) if s.current is not None}
        assert progress(state) == plain_progress(state)
        assert status_counts(state, world.now) == dict(Counter(status.values()))
        assert set(waiting_for_approval(state)) == plainly_waiting_for_approval(state)


@given(worlds)
def test_a_revision_may_change_what_each_status_says(world: Pretend) -> None:
    for _ in steps(world):
        state, status = world.state, statuses(world.state, world.now)
        may = for_revision(state)
        stuck = {id_ for id_ in status if status[id_] in {"failed", "blocked", "escalated"}}
        assert may.open == {id_ for id_ in status if status[id_] not in OVER}
        assert may.busy == {id_ for id_ in status if status[id_] in {"running", "verifying", "landing"}}
        assert may.failed == {id_ for id_ in stuck if not is_aside(state, id_)}
        assert may.split_or_dropped == {s.id for s in all_(state) if s.parts or s.dropped is not None}
        assert all(may.depth.get(subtask.id, 0) == subtask.depth for subtask in all_(state))


@given(worlds)
def test_sets_that_change_with_each_fact_are_those_made_from_scratch(world: Pretend) -> None:
    for _ in steps(world):
        subtasks = world.state.subtasks
        fresh = subtask_sets.by_plan(subtasks, subtasks.plan.specs, world.state.cleared)
        assert (fresh.rows, fresh.marks, fresh.unmet, fresh.outside) == (
            subtasks.rows,
            subtasks.marks,
            subtasks.unmet,
            subtasks.outside,
        )
        assert (fresh.made_by, fresh.plan) == (subtasks.made_by, subtasks.plan)
        assert [*subtasks.plan.specs.values()] == [*world.state.plan.subtasks]
        assert subtasks.plan.specs == world.state.specs
    for before, after in pairwise(world.state.versions):
        old = {spec.id: spec for spec in before.plan.subtasks}
        assert after.changed == tuple(spec for spec in after.plan.subtasks if spec != old.get(spec.id))


@given(worlds)
def test_a_planner_sees_and_spends_what_its_subtasks_say(world: Pretend) -> None:
    for _ in steps(world):
        state = world.state
        assert active_areas(state) == tuple(area for area in state.plan.ids if is_area(state, area))
        for area in (None, *state.areas):
            assert seen_by(state, area) == {
                subtask.id
                for subtask in all_(state)
                if (subtask.area == area or not subtask.closed) and in_charge(state, subtask.id) == area
            }
        for area in active_areas(state):
            assert abs(area_spend(state, area) - plain_spend(state, area)) < 1e-9


@given(worlds)
def test_open_questions_and_incidents_are_those_without_an_answer_or_an_end(world: Pretend) -> None:
    for _ in steps(world):
        state = world.state
        assert state.open_questions() == [asked for asked in state.questions.values() if asked.answer is None]
        open_ = [(index, incident) for index, incident in enumerate(state.incidents) if incident.closed_at is None]
        assert dict(state.troubled) == {incident.subtask: index for index, incident in open_}


@given(worlds)
def test_only_subtasks_that_changed_have_other_effects(world: Pretend) -> None:
    before, wanted = world.state, effects(world.state, world.now)
    for _ in steps(world):
        state = world.state
        changed = {subtask.id for subtask in state.subtasks.changed_since(before.subtasks)}
        now = effects(state, world.now)
        for effect in set(wanted) ^ set(now):
            assert state.ended or getattr(effect, "subtask", None) in {*changed, None}
        before, wanted = state, now


def ids(state: RunState, chosen: Set) -> set[SubtaskId]:
    return set(state.subtasks.ids(chosen))


def all_(state: RunState) -> list[SubtaskState]:
    return list(state.subtasks.values())


def is_aside(state: RunState, id_: SubtaskId) -> bool:
    subtask = state.subtasks[id_]
    asked = state.questions[subtask.question].aside if subtask.question is not None else False
    return asked or (subtask.failure is not None and subtask.failure.kind == "internal")


def is_area(state: RunState, id_: SubtaskId) -> bool:
    return id_ in state.areas and is_active(state, id_)


def plainly_waiting_for_approval(state: RunState) -> set[SubtaskId]:
    mode = state.policy.reviewing
    if mode == "none" or (mode is None and not state.policy.review):
        return set()
    undecided = {subtask.id for subtask in all_(state) if not subtask.closed and subtask.current is None}
    return {id_ for id_ in undecided if not is_approved(state, id_)}


def plain_progress(state: RunState) -> Progress:
    to_land = [
        subtask
        for subtask in all_(state)
        if not (subtask.parts or subtask.skipped or subtask.dropped is not None)
        and state.spec(subtask.id).worker != PLANNER
    ]
    return Progress(sum(subtask.landed is not None for subtask in to_land), len(to_land))


def plain_spend(state: RunState, area: SubtaskId) -> float:
    current = state.subtasks[area].attempts[-1]
    attempts = [attempt for id_ in state.subtasks.ids(inside(state, area)) for attempt in state.subtasks[id_].attempts]
    spent = [attempt.spend.priced_dollars for attempt in attempts if attempt.started_at >= current.started_at]
    return current.spend.priced_dollars + sum(spent)
