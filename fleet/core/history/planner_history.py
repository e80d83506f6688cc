"""Where the conversation with a planner stands, as facts change it: the run's own planner, or that of an area.

A part of history, as `queue.py` is: pure, and it means the same for ever.
"""

from dataclasses import replace

from fleet.core import facts as f
from fleet.core.areas import Area, in_charge, is_active, planning_of
from fleet.core.ids import SubtaskId
from fleet.core.revision import Revision
from fleet.core.state import Planning, Reading, RunState

IDLE_CALLS = frozenset({"start", "conclude"})
"""Why the planner is called when nothing else goes on: an answer that changes nothing then leads nowhere."""


def put(state: RunState, area: Area, planning: Planning) -> RunState:
    if area is None:
        return replace(state, planning=planning)
    return replace(state, areas={**state.areas, area: planning})


def opened(state: RunState, area: SubtaskId) -> RunState:
    """An attempt at an area begins: with a conversation of its own."""
    return put(state, area, Planning())


def called(state: RunState, fact: f.PlannerCalled) -> RunState:
    planning = planning_of(state, fact.area)
    news = replace(planning, reading=planning.unread, unread=Reading(), told_low=bool(state.low))
    now = replace(news, open=fact.call, why=fact.why, turn=0)
    if fact.area is None:
        return replace(state, planning=replace(now, calls=fact.call))
    state = put(state, fact.area, replace(now, calls=planning.calls + 1))
    return replace(state, planning=replace(state.planning, calls=fact.call))  # calls are numbered through the run


def answered(planning: Planning, revision: Revision) -> Planning:
    """After its revision was taken."""
    useless = not (revision.changes_plan or revision.ask or revision.finished) and planning.why in IDLE_CALLS
    return replace(
        planning,
        open=None,
        reading=Reading(),
        failures=0,
        last_failure=None,
        doing="",
        idle_calls=planning.idle_calls + 1 if useless else 0,
        synthesis=revision.synthesis if revision.finished else planning.synthesis,
    )


def failed(state: RunState, fact: f.PlannerFailed) -> RunState:
    planning = planning_of(state, fact.area)
    if fact.area is not None and planning.open != fact.call:  # its attempt is over
        return state
    now = replace(
        planning,
        open=None,
        reading=Reading(),
        unread=together(planning.reading, planning.unread),
        failures=planning.failures + 1,
        last_failure=fact.failure,
        not_before=fact.not_before,
        doing="",
    )
    return put(state, fact.area, now)


def together(first: Reading, then: Reading) -> Reading:
    return Reading(
        reports=tuple(dict.fromkeys((*first.reports, *then.reports))),
        answers=tuple(dict.fromkeys((*first.answers, *then.answers))),
        since=then.since if first.since is None else first.since,
        urgent=first.urgent or then.urgent,
    )


def told(state: RunState, id_: SubtaskId, at: float, *, urgent: bool) -> RunState:
    """Whoever is in charge of a subtask will hear of it."""
    return _heard(state, in_charge(state, id_), Reading(reports=(id_,), since=at, urgent=urgent))


def heard_answer(state: RunState, question: str, at: float) -> RunState:
    """Whoever is in charge of what a question was about, or asked it, will hear the answer."""
    asked = state.questions[question]
    area = in_charge(state, asked.about) if asked.about is not None else asked.area
    area = area if area is None or is_active(state, area) else None
    state = _heard(state, area, Reading(answers=(question,), since=at, urgent=True))
    return put(state, area, _patient(planning_of(state, area)))


def _heard(state: RunState, area: Area, news: Reading) -> RunState:
    planning = planning_of(state, area)
    return put(state, area, replace(planning, unread=together(planning.unread, news)))


def handed_up(state: RunState, area: SubtaskId) -> RunState:
    """An attempt at an area is over: its call is, and what it had not read yet is read by whoever is in charge now."""
    planning = state.areas.get(area)
    if planning is None:
        return state
    news = together(planning.reading, planning.unread)
    state = put(state, area, replace(_hung_up(planning), unread=Reading()))
    return _heard(state, in_charge(state, area), news) if news else state


def begun_anew(state: RunState) -> RunState:
    """A run goes on that had ended: every planner gets its chances again."""
    for area in (None, *state.areas):
        state = put(state, area, _patient(planning_of(state, area)))
    return state


def _patient(planning: Planning) -> Planning:
    return replace(planning, idle_calls=0, failures=0, not_before=0.0)


def with_a_new_budget(state: RunState) -> RunState:
    """Limits were changed: when they run low, that is said again."""
    for area in (None, *state.areas):
        state = put(state, area, replace(planning_of(state, area), told_low=False))
    return state


def all_closed(state: RunState) -> RunState:
    """Nobody is asked any more."""
    state = replace(state, planning=_hung_up(state.planning))
    return replace(state, areas={area: _hung_up(planning) for area, planning in state.areas.items()})


def _hung_up(planning: Planning) -> Planning:
    return replace(planning, open=None, reading=Reading(), doing="")
