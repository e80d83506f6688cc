"""When a run is over, and how it ended."""

from collections.abc import Iterator, Sequence

from fleet.core import facts as f
from fleet.core import outages, rollback
from fleet.core.approval import untouched
from fleet.core.areas import conversations, planning_of
from fleet.core.budget import over_budget
from fleet.core.calling import IDLE_CALLS, is_idle, plan_is_done, planner_is_lost, unapproved
from fleet.core.commands import effects, unpublished
from fleet.core.standing import OVER, standings
from fleet.core.state import NOT_MOVED, Question, RunState, SubtaskState

PUBLISH_TRIES = 3


def ends(state: RunState, now: float) -> Iterator[f.Fact]:
    for decision in _endings(state, now):
        yield rollback.told(state, decision)


def _endings(state: RunState, now: float) -> Iterator[f.Fact]:
    where = standings(state, now)
    if not shown(state) or (untouched(state) and state.policy.reviewing != "auto") or state.paused:
        return
    spent = over_budget(state, now)
    if spent is None and not state.draining and (why := outages.given_up(state, now)) is not None:
        yield f.RunEnded(at=now, ending="partial", why=why)
        return
    if any(planning_of(state, area).open is not None for area in conversations(state)):
        return
    if spent is not None:
        if not effects(state, now) and not state.landing.queue:
            finished = bool(where) and all(standing in OVER for standing in where.values())
            yield f.RunEnded(at=now, ending=outcome(state) if finished else "budget", why=spent)
        return
    if not is_idle(state, where, now) or state.draining:
        yield from unapproved(state, where, now)
        return
    planning = state.planning
    if planning.synthesis is not None or plan_is_done(state, where):
        why = planning.synthesis or "everything in the plan is done"
        more = f"{_never_green(state)}{_not_shown(state)}"
        yield f.RunEnded(at=now, ending=outcome(state), why=f"{why.rstrip('.')}{more}" if more else why)
    elif questions := state.open_questions():
        if now >= waits_until(state, questions):
            ids = ", ".join(question.id for question in questions)
            lost = planning.last_failure if planner_is_lost(state) else None
            why = f"the planner does not answer: {lost.summary}" if lost is not None else f"nobody answered {ids}"
            yield f.RunEnded(at=now, ending="partial", why=why)
    elif not planning.unread and planning.idle_calls >= IDLE_CALLS:
        why = "the planner had nothing more to do, and did not finish"
        yield f.RunEnded(at=now, ending=outcome(state) if where else "failed", why=why)
    elif planning.calls >= state.policy.max_planner_calls:
        yield f.RunEnded(
            at=now, ending="partial", why=f"the planner was called {planning.calls} times (planner.max_calls)"
        )


def _never_green(state: RunState) -> str:
    """What held nothing back because it was red on the base already, and has passed on no tree since."""
    never = ", ".join(check.command for check in state.red_base)
    return f". The gate never passed, neither on the base nor on anything that landed: {never}" if never else ""


def _not_shown(state: RunState) -> str:
    """Whoever looks at the result branch would miss what landed."""
    if not unpublished(state):
        return ""
    why = next((told.removeprefix(NOT_MOVED) for told in reversed(state.warnings) if told.startswith(NOT_MOVED)), "")
    return f". {state.result_branch} does not show what landed: {why}; then `fleet resume {state.run}`"


def waits_until(state: RunState, questions: Sequence[Question]) -> float:
    """How long a run with nothing else to do waits: for people since the last news, for a planner since it was lost.

    That a lost planner failed again is no news: it would put off the end for as long as it may be called.
    """
    since = state.last_at
    if lost := [question.asked_at for question in questions if question.planner]:
        since = max(state.engine_since or 0.0, *lost)
    return since + state.policy.answer_wait_s


def shown(state: RunState) -> bool:
    """Whether the user's result branch shows what landed, or will not in spite of trying."""
    return not unpublished(state) or state.publish_failures >= PUBLISH_TRIES


def outcome(state: RunState) -> f.Ending:
    """Whether all landed that was tried, and shows. What the planner dropped before anyone tried it was not wanted."""

    def fine(subtask: SubtaskState) -> bool:
        return (
            bool(subtask.parts) or subtask.landed is not None or (subtask.dropped is not None and not subtask.attempts)
        )

    return "landed" if all(map(fine, state.subtasks.values())) and not unpublished(state) else "partial"
