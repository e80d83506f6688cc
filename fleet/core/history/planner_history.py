"""Applies facts to the conversation with a planner: the run's own, or an area's."""

from collections.abc import Callable, Sequence

from fleet.core.base.ids import QuestionId, SubtaskId
from fleet.core.facts import facts as f
from fleet.core.history.replace import replace
from fleet.core.plans.revision import Revision
from fleet.core.state.state import Planning, Reading, RunState
from fleet.core.state.status import Area, in_charge, is_active, planning_of
from fleet.core.state.subtasks import Attempt, SubtaskState

IDLE_REASONS = frozenset({"start", "conclude"})
"""Reasons for a call while no other work is running. A reply without changes is then an idle call."""


def put_planning(state: RunState, area: Area, planning: Planning) -> RunState:
    if area is None:
        return replace(state, planning=planning)
    return replace(state, areas={**state.areas, area: planning})


def open_area(state: RunState, area: SubtaskId) -> RunState:
    """Start the conversation of an attempt at an area."""
    return put_planning(state, area, Planning())


def spend_in_areas(state: RunState, subtask: SubtaskState, attempt: Attempt, dollars: float) -> RunState:
    """Count the spending of an attempt for every area around it, if the area's own attempt is not younger."""
    area = subtask.area
    while area is not None:
        current = state.subtasks[area].current
        if current is not None and attempt.started_at >= current.started_at:
            planning = planning_of(state, area)
            state = put_planning(state, area, replace(planning, spent=planning.spent + dollars))
        area = state.subtasks[area].area
    return state


def open_call(state: RunState, fact: f.PlannerCalled) -> RunState:
    planning = planning_of(state, fact.area)
    reading = replace(planning, reading=planning.unread, unread=Reading(), knows_low_budget=bool(state.low))
    now = replace(reading, open=fact.call, why=fact.why, turn=0)
    if fact.area is None:
        return replace(state, planning=replace(now, calls=fact.call))
    state = put_planning(state, fact.area, replace(now, calls=planning.calls + 1))
    return replace(state, planning=replace(state.planning, calls=fact.call))  # calls are numbered across the run


def take_answer(planning: Planning, revision: Revision) -> Planning:
    """The conversation after the planner's revision was applied."""
    idle = not (revision.changes_plan or revision.ask or revision.finished) and planning.why in IDLE_REASONS
    return replace(
        planning,
        open=None,
        reading=Reading(),
        failures=0,
        last_failure=None,
        doing="",
        idle_calls=planning.idle_calls + 1 if idle else 0,
        synthesis=revision.synthesis if revision.finished else planning.synthesis,
    )


def fail_call(state: RunState, fact: f.PlannerFailed) -> RunState:
    planning = planning_of(state, fact.area)
    if fact.area is not None and planning.open != fact.call:  # its attempt is over
        return state
    now = replace(
        planning,
        open=None,
        reading=Reading(),
        unread=_join(planning.reading, planning.unread),
        failures=planning.failures + 1,
        last_failure=fact.failure,
        not_before=fact.not_before,
        doing="",
    )
    return put_planning(state, fact.area, now)


def _join(first: Reading, then: Reading) -> Reading:
    reports = first.reports
    for id_ in then.reports:
        reports = reports.append(id_)
    return Reading(
        reports=reports,
        answers=tuple(dict.fromkeys((*first.answers, *then.answers))),
        since=then.since if first.since is None else first.since,
        urgent=first.urgent or then.urgent,
    )


def report_to_planner(state: RunState, ids: Sequence[SubtaskId], at: float, *, urgent: bool) -> RunState:
    """Add subtasks to the unread reports of the planners in charge of them."""
    by_area: dict[Area, list[SubtaskId]] = {}
    for id_ in ids:
        by_area.setdefault(in_charge(state, id_), []).append(id_)
    for area, reported in by_area.items():
        planning = planning_of(state, area)
        unread = planning.unread
        since = at if unread.since is None else unread.since
        news = replace(unread, reports=unread.reports.extend(reported), since=since, urgent=unread.urgent or urgent)
        state = put_planning(state, area, replace(planning, unread=news))
    return state


def report_answer(state: RunState, question: QuestionId, at: float) -> RunState:
    """Add an answer to the unread news of the planner in charge of its subtask, or of the planner that asked."""
    asked = state.questions[question]
    area = in_charge(state, asked.about) if asked.about is not None else asked.area
    area = area if area is None or is_active(state, area) else None
    state = _add_unread(state, area, Reading(answers=(question,), since=at, urgent=True))
    return put_planning(state, area, _with_patience(planning_of(state, area)))


def _add_unread(state: RunState, area: Area, news: Reading) -> RunState:
    planning = planning_of(state, area)
    return put_planning(state, area, replace(planning, unread=_join(planning.unread, news)))


def close_area(state: RunState, area: SubtaskId) -> RunState:
    """End an attempt at an area and its open call. The planner now in charge gets its unread reports."""
    planning = state.areas.get(area)
    if planning is None:
        return state
    news = _join(planning.reading, planning.unread)
    state = put_planning(state, area, replace(_without_call(planning), unread=Reading()))
    return _add_unread(state, in_charge(state, area), news) if news else state


def renew_patience(state: RunState) -> RunState:
    """Count every planner's failures and idle calls from zero, because an ended run continues."""
    return _change_all(state, _with_patience)


def _with_patience(planning: Planning) -> Planning:
    return replace(planning, idle_calls=0, failures=0, not_before=0.0)


def forget_low_budget(state: RunState) -> RunState:
    """Inform planners again when a budget runs low, because limits were changed."""
    return _change_all(state, lambda planning: replace(planning, knows_low_budget=False))


def close_calls(state: RunState) -> RunState:
    """End all open calls."""
    return _change_all(state, _without_call)


def _change_all(state: RunState, change: Callable[[Planning], Planning]) -> RunState:
    areas = {area: change(planning) for area, planning in state.areas.items()}
    return replace(state, planning=change(state.planning), areas=areas)


def _without_call(planning: Planning) -> Planning:
    return replace(planning, open=None, reading=Reading(), doing="")
