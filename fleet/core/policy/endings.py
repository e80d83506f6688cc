"""When a run is over, and how it ended."""

from collections.abc import Iterator, Sequence

from fleet.core.policy import budget
from fleet.core.policy.budget import over_budget
from fleet.core.policy.effects import effects, unpublished
from fleet.core.policy.landing import rollback_ending
from fleet.core.policy.planner_policy import IDLE_CALLS, end_unapproved, has_calls_left, is_idle, plan_is_done
from fleet.core.policy.requests import awaits_approval, is_unreviewed
from fleet.core.state import facts as f
from fleet.core.state.areas import conversations, planning_of
from fleet.core.state.state import Question, RunState

PUBLISH_TRIES = 3


def end_run(state: RunState, now: float) -> Iterator[f.Fact]:
    for decision in _endings(state, now):
        yield rollback_ending(state, decision)


def _endings(state: RunState, now: float) -> Iterator[f.Fact]:
    if not is_published(state) or (is_unreviewed(state) and state.policy.reviewing != "auto") or state.paused:
        return
    spent = over_budget(state, now)
    if spent is None and not state.draining and (why := budget.given_up_reason(state, now)) is not None:
        yield f.RunEnded(at=now, ending="partial", why=why)
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
        why = "the planner had nothing more to do, and did not finish"
        yield f.RunEnded(at=now, ending=outcome(state) if state.subtasks else "failed", why=why)
    elif not has_calls_left(state):
        called = f"the planner was called {planning.calls} times (planner.max_calls)"
        why = called if state.has_planner else "without an API key, no planner decides what comes next"
        yield f.RunEnded(at=now, ending="partial", why=why)


def _never_green(state: RunState) -> str:
    """The commands of the gate that failed on the base and on every tree since, which is why they stopped nothing."""
    commands = ", ".join(check.command for check in state.red_base)
    return f". The gate never passed, neither on the base nor on anything that landed: {commands}" if commands else ""


def _not_published(state: RunState) -> str:
    if not unpublished(state):
        return ""
    why = f": {state.publish_problem}" if state.publish_problem else ""
    return f". {state.result_branch} does not show what landed{why}; fix that, then `fleet resume {state.run}`"


def _unanswered(state: RunState, questions: Sequence[Question]) -> str:
    """Why a run with open questions ends. Those about what an error of ours set aside have its trace."""
    aside = [question.about or "the planner" for question in questions if question.aside]
    asked = [question for question in questions if not question.aside]
    reasons = list[str]()
    lost = state.planning.last_failure
    if lost is not None and any(question.planner for question in asked):
        reasons.append(f"the planner does not answer: {lost.summary}")
    elif asked:
        reasons.append("no one answered " + ", ".join(question.id for question in asked))
    if aside:
        reasons.append("set aside because of an error of fleet: " + ", ".join(aside))
    return "; ".join(reasons)


def waits_until(state: RunState, questions: Sequence[Question]) -> float:
    """Until when a run with nothing else to do waits: for people from the last news, for a planner from its loss.

    Another failure of a lost planner does not count as news, or else it would put off the end with every call. What is
    set aside because of an error of ours waits for no one.
    """
    questions = [question for question in questions if not question.aside]
    if not questions:
        return 0.0
    since = state.last_at
    if lost_at := [question.asked_at for question in questions if question.planner]:
        since = max(state.engine_since or 0.0, *lost_at)
    return since + state.policy.answer_wait_s


def ends_unanswered_at(state: RunState, now: float) -> float | None:
    """When the run ends if no one answers or approves; None while it has other work, or waits without a limit."""
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
    """Whether the result branch shows what landed, or too many attempts to move it failed."""
    gave_up = state.publish_failures >= PUBLISH_TRIES or state.tip == state.publish_aside
    return not unpublished(state) or gave_up


def outcome(state: RunState) -> f.Ending:
    """`landed` if all subtasks that were tried landed and are published. One dropped before any try is ignored."""
    is_done = all(
        subtask.parts or subtask.landed is not None or (subtask.dropped is not None and not subtask.attempts)
        for subtask in state.subtasks.values()
    )
    return "landed" if is_done and not unpublished(state) else "partial"
