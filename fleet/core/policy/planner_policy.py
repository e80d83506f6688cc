"""When a planner is called, the run's own or an area's, and when one of an area has come to nothing.

A part of policy, as `decide.py` is.
"""

from collections.abc import Iterator

from fleet.core import facts as f
from fleet.core.approval import awaits_approval, waiting
from fleet.core.areas import Area, active, conversations, is_active, planning_of, questions_in, seen_by, spent
from fleet.core.commands import base_unknown
from fleet.core.ids import SubtaskId
from fleet.core.standing import BUSY, OVER, Standing, standings, starts_at
from fleet.core.state import RunState

IDLE_CALLS = 2  # planner calls in a row that may lead nowhere
MICRODOLLAR = 1e-6  # an area that has nothing left still begins, and then ends


def held(state: RunState) -> bool:
    """Whether something is wrong that concerns the whole run and waits for a human."""
    return any(question.holds_all for question in state.open_questions())


def planner_is_lost(state: RunState) -> bool:
    """Whether the planner has not answered for so long that somebody was asked about it."""
    return any(question.planner for question in state.open_questions())


def why_call(state: RunState, area: Area, where: dict[SubtaskId, Standing], now: float) -> str | None:
    planning = planning_of(state, area)
    unread, idle_calls = planning.unread, planning.idle_calls
    if unread.answers:
        return "answers"
    seen = {id_: where[id_] for id_ in seen_by(state, area)}
    questions = state.open_questions() if area is None else questions_in(state, area)
    if not seen:
        return None if questions or idle_calls >= IDLE_CALLS else "start"
    if unread.urgent:
        return "failures"
    idle = is_idle(state, where, now) if area is None else area_is_idle(state, area, seen, now)
    if state.low and not planning.told_low and not _given(state, area) and not _nothing_open(seen):
        return "budget"
    if unread and not _given(state, area) and (idle or now >= (unread.since or 0.0) + state.policy.settle_s):
        return "conclude" if idle else "reports"
    if not idle or idle_calls >= IDLE_CALLS:
        return None
    if unattended(seen) or (not questions and not (area is None and plan_is_done(state, where))):
        return "conclude"
    return None


def _given(state: RunState, area: Area) -> bool:
    return area is None and state.given


def _nothing_open(where: dict[SubtaskId, Standing]) -> bool:
    return all(standing in OVER for standing in where.values())


def unattended(where: dict[SubtaskId, Standing]) -> list[SubtaskId]:
    return [id_ for id_, standing in where.items() if standing in {"failed", "blocked"}]


def plan_is_done(state: RunState, where: dict[SubtaskId, Standing]) -> bool:
    """Whether a plan that came with the run has nothing left to do."""
    return state.given and _nothing_open(where)


def is_idle(state: RunState, where: dict[SubtaskId, Standing], now: float) -> bool:
    """Nothing runs, nothing may begin, and time alone will change nothing."""
    if state.landing.queue or state.landing.probes or base_unknown(state):
        return False
    planners = [planning_of(state, area) for area in conversations(state)]
    if any(planning.open is not None for planning in planners):
        return False
    if any(planning.not_before > now for planning in planners[1:]):
        return False
    if any(_is_busy(state, id_, standing) for id_, standing in where.items()):
        return False
    if held(state):
        return True
    return not any(_may_go_on(state, id_, standing, now) for id_, standing in where.items())


def area_is_idle(state: RunState, area: SubtaskId, seen: dict[SubtaskId, Standing], now: float) -> bool:
    """The same of what its planner sees."""
    return planning_of(state, area).open is None and not any(
        _is_busy(state, id_, standing) or _may_go_on(state, id_, standing, now) for id_, standing in seen.items()
    )


def _is_busy(state: RunState, id_: SubtaskId, standing: Standing) -> bool:
    """Whether an effect is about it. An area that is worked on is busy by what is in it."""
    return standing in BUSY and not (standing == "running" and id_ in state.areas and is_active(state, id_))


def _may_go_on(state: RunState, id_: SubtaskId, standing: Standing, now: float) -> bool:
    return standing == "ready" or (standing == "waiting" and starts_at(state, id_) > now)


def areas_fail(state: RunState, now: float) -> Iterator[f.Fact]:
    """An area whose planner can't go on: whoever is in charge of it decides what becomes of it."""
    areas = active(state)
    where = standings(state, now) if areas else {}
    for area in areas:
        failure = _area_failure(state, area, where, now)
        if failure is not None:
            number = len(state.subtasks[area].attempts)
            yield f.AttemptFailed(at=now, subtask=area, number=number, failure=failure)


def _area_failure(state: RunState, area: SubtaskId, where: dict[SubtaskId, Standing], now: float) -> f.Failure | None:
    planning, current = state.areas[area], state.subtasks[area].attempts[-1]
    last = planning.last_failure
    if planning.failures >= state.policy.max_planner_failures and last is not None:
        why = f"its planner failed {planning.failures} times in a row: {last.summary}"
        return f.Failure(kind=last.kind, summary=why, evidence=last.evidence)
    if current.allowance is not None and spent(state, area) >= max(current.allowance, MICRODOLLAR):
        return f.Failure(kind="budget", summary=f"its share of the budget, ${current.allowance:.2f}, is spent")
    seen = {id_: where[id_] for id_ in seen_by(state, area)}
    given_up = planning.idle_calls >= IDLE_CALLS and not planning.unread
    if given_up and not unattended(seen) and not questions_in(state, area) and area_is_idle(state, area, seen, now):
        return f.Failure(kind="protocol", summary="its planner had nothing more to do, and did not finish")
    return None


def unapproved(state: RunState, where: dict[SubtaskId, Standing], now: float) -> Iterator[f.Fact]:
    """Where no person was expected, a run that has nothing else to do does not wait for one for ever."""
    if state.policy.reviewing != "auto" or state.draining or state.landing.queue or not awaits_approval(state):
        return
    mine = [id_ for id_, standing in where.items() if standing == "ready" or standing in BUSY]
    if set(mine) <= set(waiting(state)) and now >= state.last_at + state.policy.answer_wait_s:
        yield f.RunEnded(at=now, ending="partial", why=f"nobody approved {', '.join(mine)}")
