"""When a run is over, and how it ended."""

from collections.abc import Iterator, Sequence

from fleet.core.base.ids import SubtaskId
from fleet.core.facts import facts as f
from fleet.core.policy import budget
from fleet.core.policy.budget import over_budget
from fleet.core.policy.effects import CallPlanner, RunAttempt, base_unknown, effects, unpublished
from fleet.core.policy.landing import waits_in_vain
from fleet.core.policy.requests import awaits_approval, is_unreviewed, rollback_ending, unapproved
from fleet.core.state.state import Question, RunState
from fleet.core.state.status import (
    Area,
    active_areas,
    area_spend,
    conversations,
    planning_of,
    questions_in,
    ready,
    seen,
    starts_at,
    undecided_failures,
)
from fleet.core.state.subtasks import Mark, Set

PUBLISH_TRIES = 3


def end_run(state: RunState, now: float) -> Iterator[f.Fact]:
    for decision in _endings(state, now):
        yield rollback_ending(state, decision)


def _endings(state: RunState, now: float) -> Iterator[f.Fact]:
    if not is_published(state) or (is_unreviewed(state) and state.policy.reviewing != "auto") or state.paused:
        return
    spent = over_budget(state, now)
    given_up = budget.given_up_reason(state, now) if spent is None and not state.draining else None
    if given_up is not None and all(isinstance(command, RunAttempt | CallPlanner) for command in effects(state, now)):
        yield f.RunEnded(at=now, ending="partial", why=given_up)
        return
    if any(planning_of(state, area).open is not None for area in conversations(state)):
        return
    if spent is not None:
        if not effects(state, now) and not state.landing.queue:
            finished = bool(state.subtasks) and not state.subtasks.open
            yield f.RunEnded(at=now, ending=outcome(state) if finished else "budget", why=spent)
        return
    planning = state.planning
    is_over = planning.synthesis is not None or plan_is_done(state)
    if not is_idle(state, now) or (state.draining and not is_over):
        yield from end_unapproved(state, now)
        return
    if is_over:
        why = planning.synthesis or "everything in the plan is done"
        more = f"{_never_green(state)}{_not_published(state)}"
        yield f.RunEnded(at=now, ending=outcome(state), why=f"{why.rstrip('.')}{more}" if more else why)
    elif questions := state.open_questions():
        if now >= waits_until(state, questions):
            why = _unanswered(state, questions)
            yield f.RunEnded(at=now, ending="partial" if state.subtasks else "failed", why=why)
    elif not planning.unread and planning.idle_calls >= IDLE_CALLS:
        why = "the planner returned no further work, but did not finish the plan"
        yield f.RunEnded(at=now, ending=outcome(state) if state.subtasks else "failed", why=why)
    elif not has_calls_left(state):
        called = f"the planner was called {planning.calls} times (planner.max_calls)"
        why = called if state.has_planner else "without an API key, the planner can't decide the next step"
        yield f.RunEnded(at=now, ending="partial", why=why)


def _never_green(state: RunState) -> str:
    """Return the commands of the gate that failed on the base and on every later tree, and so blocked no landing."""
    commands = ", ".join(check.command for check in state.red_base)
    return f". The gate never passed, neither on the base nor on any landed commit: {commands}" if commands else ""


def _not_published(state: RunState) -> str:
    if not unpublished(state):
        return ""
    why = f": {state.publish_problem}" if state.publish_problem else ""
    return f". {state.result_branch} does not include all landed work{why}. Fix this, then `fleet resume {state.run}`"


def _unanswered(state: RunState, questions: Sequence[Question]) -> str:
    """Return why a run with open questions ends, including tracebacks of internal errors."""
    aside = [question.about or "the planner" for question in questions if question.aside]
    asked = [question for question in questions if not question.aside]
    reasons = list[str]()
    lost = state.planning.last_failure
    if lost is not None and any(question.planner for question in asked):
        reasons.append(f"the planner does not respond: {lost.summary}")
    elif asked:
        reasons.append("no one answered " + ", ".join(question.id for question in asked))
    if aside:
        reasons.append("set aside because of an internal error: " + ", ".join(aside))
    return "; ".join(reasons)


def waits_until(state: RunState, questions: Sequence[Question]) -> float:
    """Return how long a run without other work waits: for humans since the last news, for a planner since its loss.

    Another failure of a lost planner is not news, because it would postpone the end with every call. Work that is set
    aside after an internal error does not extend the wait.
    """
    questions = [question for question in questions if not question.aside]
    if not questions:
        return 0.0
    since = state.last_at
    if lost_at := [question.asked_at for question in questions if question.planner]:
        since = max(state.engine_since or 0.0, *lost_at)
    return since + state.policy.answer_wait_s


def ends_unanswered_at(state: RunState, now: float) -> float | None:
    """Return when the run ends without an answer or approval. None while it has other work or waits without a limit."""
    if state.ended or state.paused or state.draining or over_budget(state, now) is not None:
        return None
    if times := budget.deadlines(state):
        return min(times)
    if not is_idle(state, now) or state.planning.synthesis is not None or plan_is_done(state):
        return None
    asked = [question for question in state.open_questions() if not question.aside]
    if asked:
        return waits_until(state, asked)
    if awaits_approval(state) and state.policy.reviewing == "auto":
        return state.last_at + state.policy.answer_wait_s
    return None


def is_published(state: RunState) -> bool:
    """Return whether the result branch includes all landed work, or could not be moved too many times."""
    gave_up = state.publish_failures >= PUBLISH_TRIES or state.tip == state.publish_aside
    return not unpublished(state) or gave_up


def outcome(state: RunState) -> f.Ending:
    """`landed` if all subtasks that were tried landed and are published. One dropped before any try is ignored."""
    is_done = all(
        subtask.parts or subtask.landed is not None or (subtask.dropped is not None and not subtask.attempts)
        for subtask in state.subtasks.values()
    )
    return "landed" if is_done and not unpublished(state) else "partial"


# ---- planner policy --------------------------------------------------------------------------------------------------
# When a planner is called, the run's own or an area's, and when an area fails because of its planner.


IDLE_CALLS = 2  # maximum number of consecutive planner calls without changes
MICRODOLLAR = 1e-6  # an area without any budget still starts, and then fails


def is_held(state: RunState) -> bool:
    """Return whether an open question about the entire run prevents new work."""
    return any(question.holds_all for question in state.open_questions())


def planner_is_lost(state: RunState) -> bool:
    """Return whether the planner failed so often that fleet asked a human."""
    return any(question.planner for question in state.open_questions())


def has_calls_left(state: RunState) -> bool:
    """Whether the planner can be called at all, and may be."""
    return state.has_planner and state.planning.calls < state.policy.max_planner_calls


def call_reason(state: RunState, area: Area, now: float) -> str | None:
    """Return the reason for calling a planner now, or None."""
    planning = planning_of(state, area)
    unread, idle_calls = planning.unread, planning.idle_calls
    if unread.answers:
        return "answers"
    subtasks = seen(state, area)
    questions = state.open_questions() if area is None else questions_in(state, area)
    if not subtasks:
        return None if questions or idle_calls >= IDLE_CALLS else "start"
    if unread.urgent:
        return "failures"
    idle = is_idle(state, now) if area is None else area_is_idle(state, area, now)
    open_ = subtasks & state.subtasks.open
    if state.low and not planning.knows_low_budget and not _has_given_plan(state, area) and open_:
        return "budget"
    if unread and not _has_given_plan(state, area) and (idle or now >= (unread.since or 0.0) + state.policy.settle_s):
        return "conclude" if idle else "reports"
    if not idle or idle_calls >= IDLE_CALLS:
        return None
    if subtasks & undecided_failures(state) or (not questions and not (area is None and plan_is_done(state))):
        return "conclude"
    return None


def _has_given_plan(state: RunState, area: Area) -> bool:
    return area is None and state.given


def plan_is_done(state: RunState) -> bool:
    """Return whether all work of a plan given to the run is done."""
    return state.given and not state.subtasks.open


def is_idle(state: RunState, now: float) -> bool:
    """Return whether no work runs or may start, and time alone will not change that."""
    stuck = waits_in_vain(state)
    if (state.landing.queue and not stuck) or state.landing.open_batches or base_unknown(state):
        return False
    planners = [planning_of(state, area) for area in conversations(state)]
    if any(planning.open is not None for planning in planners):
        return False
    if any(planning.not_before > now for planning in planners[1:]):
        return False
    queued = state.subtasks.set_of(state.landing.queue) if stuck else 0
    if _busy(state) & ~queued:
        return False
    return is_held(state) or not _may_start(state, state.subtasks.all, now)


def area_is_idle(state: RunState, area: SubtaskId, now: float) -> bool:
    """Return whether the subtasks of an area's planner are idle. An area inside it is never idle."""
    subtasks = seen(state, area)
    busy = subtasks & state.subtasks.marked(Mark.UNDERWAY)
    return planning_of(state, area).open is None and not busy and not _may_start(state, subtasks, now)


def _busy(state: RunState) -> Set:
    """The subtasks that an effect concerns. An active area is only as busy as the subtasks in it."""
    return state.subtasks.marked(Mark.UNDERWAY) & ~state.subtasks.marked(Mark.PLANNING)


def _may_start(state: RunState, chosen: Set, now: float) -> bool:
    """Whether any of these may start, now or when time has passed."""
    subtasks = state.subtasks
    waiting = chosen & subtasks.waiting
    if waiting & subtasks.startable:
        return True
    return any(starts_at(state, id_) > now for id_ in subtasks.first(waiting & subtasks.timed))


def fail_areas(state: RunState, now: float) -> Iterator[f.Fact]:
    """Fail each area whose planner can't continue. The planner in charge of the area decides the next step."""
    for area in active_areas(state):
        failure = _area_failure(state, area, now)
        if failure is not None:
            number = len(state.subtasks[area].attempts)
            yield f.AttemptFailed(at=now, subtask=area, number=number, failure=failure)


def _area_failure(state: RunState, area: SubtaskId, now: float) -> f.Failure | None:
    planning, current = state.areas[area], state.subtasks[area].attempts[-1]
    last = planning.last_failure
    if planning.is_aside and last is not None:
        return last
    if planning.failures >= state.policy.max_planner_failures and last is not None:
        why = f"its planner failed {planning.failures} times in a row: {last.summary}"
        return f.Failure(kind=last.kind, summary=why, evidence=last.evidence)
    if current.allowance is not None and area_spend(state, area) >= max(current.allowance, MICRODOLLAR):
        return f.Failure(kind="budget", summary=f"its share of the budget, ${current.allowance:.2f}, is used up")
    is_stuck = planning.idle_calls >= IDLE_CALLS and not planning.unread and not questions_in(state, area)
    if is_stuck and not seen(state, area) & undecided_failures(state) and area_is_idle(state, area, now):
        return f.Failure(kind="protocol", summary="its planner returned no further work, but did not finish the area")
    return None


def end_unapproved(state: RunState, now: float) -> Iterator[f.Fact]:
    """End a run that waits only for an approval that no human is expected to give."""
    if state.policy.reviewing != "auto" or state.draining or state.landing.queue or not awaits_approval(state):
        return
    if now < state.last_at + state.policy.answer_wait_s:
        return
    moving = ready(state, now) | state.subtasks.marked(Mark.UNDERWAY)
    if not moving & ~unapproved(state):
        ids = state.subtasks.in_plan_order(moving)
        yield f.RunEnded(at=now, ending="partial", why=f"no one approved {', '.join(ids)}")
