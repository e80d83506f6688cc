"""Policy: decides the next steps from the state. Pure and level-triggered. It may change between versions.

`decide` returns decisions as facts. The engine records them and calls it again until there are none.
"""

from collections.abc import Callable, Iterator
from itertools import islice
from math import inf

from fleet.core.facts import facts as f
from fleet.core.facts.failures import how
from fleet.core.plans.limits import size_of
from fleet.core.policy import budget
from fleet.core.policy.budget import budget_wakes, low_budget, over_budget
from fleet.core.policy.effects import base_unknown
from fleet.core.policy.endings import (
    IDLE_CALLS,
    area_is_idle,
    call_reason,
    end_run,
    fail_areas,
    has_calls_left,
    is_held,
    is_idle,
    is_published,
    planner_is_lost,
    waits_until,
)
from fleet.core.policy.ladder import take_rung
from fleet.core.policy.landing import is_full, member_of, next_batches, send_back
from fleet.core.policy.remedies import choose_remedy, failure_question, model_for
from fleet.core.policy.requests import approved_by_rules, awaits_approval, is_unreviewed, or_rollback, unapproved
from fleet.core.state.machines import Occupancy
from fleet.core.state.state import RunState
from fleet.core.state.status import allowance, conversations, planning_of, ready, seen, starts_at, undecided_failures
from fleet.core.state.subtasks import Mark


def decide(state: RunState, now: float) -> tuple[f.Fact, ...]:
    """Return the next decisions, if any.

    They come from a single rule, so that the next rule sees their effects.
    """
    if state.ended:
        return ()
    for rule in RULES:
        decisions = tuple(rule(state, now))
        if decisions:
            return decisions
    return ()


def next_wake(state: RunState, now: float) -> float | None:
    """Return when time alone may change the result of `decide` or `effects`, or None."""
    if state.ended:
        return None
    subtasks = state.subtasks
    times = [starts_at(state, id_) for id_ in subtasks.first(subtasks.waiting & subtasks.timed)]
    times.append(state.publish_not_before)
    for planning in (planning_of(state, area) for area in conversations(state)):
        times.append(planning.not_before)
        if planning.unread.since is not None:
            times.append(planning.unread.since + state.policy.settle_s)
    if questions := state.open_questions():
        times.append(waits_until(state, questions))
    if state.policy.reviewing == "auto" and awaits_approval(state):
        times.append(state.last_at + state.policy.answer_wait_s)
    times += budget_wakes(state, now)
    times += [budget.question_due_at(state, scope, outage) for scope, outage in state.service.items()]
    times += budget.deadlines(state)
    return min((at for at in times if at > now), default=None)


def may_start_work(state: RunState, now: float) -> bool:
    """Whether new work may start: attempts and planner calls."""
    stopped = state.paused or state.draining or state.cancelled or is_held(state)
    return not stopped and not base_unknown(state) and over_budget(state, now) is None


# ---- rules ----------------------------------------------------------------------------------------------------------


def _end_cancelled(state: RunState, now: float) -> Iterator[f.Fact]:
    if state.cancelled and not state.landing.open_batches and is_published(state):
        yield f.RunEnded(at=now, ending="cancelled", why="canceled by the operator")


def _approve_by_rules(state: RunState, now: float) -> Iterator[f.Fact]:
    if ids := approved_by_rules(state):
        yield f.PlanApproved(at=now, version=state.plan.version, by="the review rules", subtasks=ids, automatic=True)


def _end_on_bad_base(state: RunState, now: float) -> Iterator[f.Fact]:
    """End the run before money is spent if the gate fails on the base and so can't judge any work."""
    if not state.base_checked or state.commits > 0:
        return
    where = f"the base {state.base_name} ({state.base[:12]})"
    if state.base_failure is not None:
        yield f.RunEnded(at=now, ending="failed", why=f"can't run commands on {where}: {state.base_failure.summary}")
    elif state.red_base and not state.policy.allow_red_base:
        red = ", ".join(f"{check.command} ({how(check)})" for check in state.red_base)
        why = f"the gate fails on {where} before any work was done: {red}. Fix it, or continue with --allow-red-base"
        yield f.RunEnded(at=now, ending="failed", why=why)


def _ask_about_configuration(state: RunState, now: float) -> Iterator[f.Fact]:
    """Ask a human to fix a wrong key or model. A failure of a later attempt asks again."""
    failed = map(state.subtasks.__getitem__, state.subtasks.in_plan_order(state.subtasks.marked(Mark.FAILED)))
    failures = [
        (subtask.failure, subtask.attempts[-1].started_at if subtask.attempts else -inf)
        for subtask in failed
        if subtask.failure is not None and subtask.failure.kind == "configuration"
    ]
    planner = state.planning.last_failure
    if planner is not None and planner.kind == "configuration":
        failures.append((planner, -inf))
    if not failures or is_held(state):
        return
    if state.spent.calls == 0 and state.commits == 0:
        yield f.RunEnded(at=now, ending="failed", why=failures[0][0].summary)
        return
    asked = [question for question in state.questions.values() if question.about is None]
    for failure, started_at in failures:
        if not any(question.evidence == failure.evidence and question.asked_at >= started_at for question in asked):
            yield f.QuestionAsked(
                at=now,
                about=None,
                question=f"No new agents start: {failure.summary}. Fix the cause, then send any answer to continue.",
                options=("continue",),
                evidence=failure.evidence,
            )
            return


def _ask_about_service(state: RunState, now: float) -> Iterator[f.Fact]:
    """Ask about an outage that blocks the run: immediately if only a human can end it, otherwise after a while."""
    for scope, outage in state.service.items():
        if state.spent.calls and now >= budget.question_due_at(state, scope, outage):
            yield budget.question(state, scope, outage, now)


def _ask_about_planner(state: RunState, now: float) -> Iterator[f.Fact]:
    """Ask about a planner that keeps failing. Planned work continues, and so do the calls."""
    planning, last = state.planning, state.planning.last_failure
    if planning.is_aside and last is not None and not planner_is_lost(state):
        why = (
            f"fleet stopped calling the planner: {last.summary}. Planned work continues. "
            "To call it again, send any answer."
        )
        yield f.QuestionAsked(
            at=now, about=None, question=why, options=("call it",), evidence=last.evidence, planner=True, aside=True
        )
        return
    if planning.failures < state.policy.max_planner_failures or last is None:
        return
    if is_held(state) or planner_is_lost(state):
        return
    if state.spent.calls == 0 and not state.subtasks:
        yield f.RunEnded(at=now, ending="failed", why=last.summary)
        return
    yield f.QuestionAsked(
        at=now,
        about=None,
        question=f"The planner failed {planning.failures} times in a row: {last.summary}. Planned work continues, and "
        "the planner is called again automatically. Send any answer to call it now.",
        options=("call it now",),
        evidence=last.evidence,
        planner=True,
    )


def _choose_remedies(state: RunState, now: float) -> Iterator[f.Fact]:
    if state.cancelled:
        return
    subtasks = state.subtasks
    open_ = subtasks.marked(Mark.FAILED) & subtasks.open & ~subtasks.marked(Mark.ASKED)
    for subtask in map(subtasks.__getitem__, subtasks.in_plan_order(open_)):
        if subtask.failure is None or subtask.remedy is not None:
            continue
        decision = choose_remedy(state, subtask, subtask.failure, now)
        decision = or_rollback(state, subtask.id, subtask.failure, decision)
        yield decision
        if isinstance(decision, f.RollbackStarted | f.RunEnded):  # this settles all other failures
            return


def _note_low_budget(state: RunState, now: float) -> Iterator[f.Fact]:
    if not state.low and (why := low_budget(state, now)) is not None:
        yield f.BudgetRanLow(at=now, why=why)


def _start_attempts(state: RunState, now: float) -> Iterator[f.Fact]:
    if not may_start_work(state, now):
        return
    subtasks = state.subtasks
    free = state.policy.workers - subtasks.marked(Mark.RUNNING).bit_count()
    if state.policy.budget_attempts is not None:
        free = min(free, state.policy.budget_attempts - state.attempts)
    free = 0 if is_full(state) else max(0, free)
    startable = ready(state, now) & ~unapproved(state)
    areas = subtasks.ids(startable & subtasks.areas)  # these need no worker
    occupancy = Occupancy(state)
    placed = (id_ for id_ in subtasks.first(startable & ~subtasks.areas) if occupancy.take(state.spec(id_)))
    for id_ in (*areas, *islice(placed, free)):
        spec, subtask = state.spec(id_), state.subtasks[id_]
        taken = take_rung(state, spec, subtask)
        yield f.AttemptStarted(
            at=now,
            subtask=id_,
            number=len(subtask.attempts) + 1,
            worker=spec.worker,
            model=taken.model or model_for(state.policy, spec, subtask),
            effort=taken.effort,
            size=size_of(spec.estimate),
            choice=taken.choice,
            base=state.start_of(id_),
            strategy=subtask.strategy,
            guidance=subtask.guidance,
            allowance=allowance(state, id_) if id_ in areas else None,
        )


def _form_batches(state: RunState, now: float) -> Iterator[f.Fact]:
    for number, members in enumerate(next_batches(state), state.landing.batches + 1):
        yield f.BatchFormed(at=now, number=number, members=members)


def _judge_suspect(state: RunState, now: float) -> Iterator[f.Fact]:
    """Test the only remaining suspect again, alone, while the queue continues; or eject it.

    A single failure on the tip may be a coincidence. Failures of longer batches are no evidence, because later members
    may have caused them.
    """
    if len(state.landing.suspects) != 1:
        return
    [id_] = state.landing.suspects
    if state.policy.reruns > 0:
        number = state.landing.batches + 1
        yield f.BatchFormed(at=now, number=number, members=(member_of(state, id_),), alone=True)
    else:
        yield send_back(state, id_, state.landing.suspicion, now)


def _call_planners(state: RunState, now: float) -> Iterator[f.Fact]:
    if not may_start_work(state, now) or state.undoing is not None or not has_calls_left(state):
        return
    calls = state.planning.calls
    unreviewed = is_unreviewed(state)
    for area in reversed(conversations(state)):  # the run's own last: it is not idle while another is called
        planning = planning_of(state, area)
        if area is None and calls > state.planning.calls:
            return
        if planning.is_aside or planning.open is not None or planning.synthesis is not None:
            continue
        if now < planning.not_before:
            continue
        why = call_reason(state, area, now)
        if unreviewed and why != "answers":
            continue
        if why is not None and calls < state.policy.max_planner_calls:
            calls += 1
            yield f.PlannerCalled(at=now, call=calls, why=why, area=area)


def _ask_about_unattended(state: RunState, now: float) -> Iterator[f.Fact]:
    """Ask about failures that the planner left undecided, with its calls used up or without an answer."""
    failures = undecided_failures(state)
    if not failures:
        return
    for area in conversations(state):
        lost = area is None and planner_is_lost(state) and now >= waits_until(state, state.open_questions())
        if planning_of(state, area).idle_calls < IDLE_CALLS and has_calls_left(state) and not lost:
            continue
        if not (is_idle(state, now) if area is None else area_is_idle(state, area, now)):
            continue
        for id_ in state.subtasks.in_plan_order(failures & seen(state, area)):
            subtask = state.subtasks[id_]
            if subtask.failure is not None:
                yield failure_question(subtask, subtask.failure, now)


Rule = Callable[[RunState, float], Iterator[f.Fact]]
RULES: tuple[Rule, ...] = (
    _end_cancelled,
    _end_on_bad_base,
    _approve_by_rules,
    _ask_about_configuration,
    _ask_about_service,
    _ask_about_planner,
    _judge_suspect,
    _choose_remedies,
    _form_batches,
    _note_low_budget,
    _start_attempts,
    fail_areas,
    _call_planners,
    _ask_about_unattended,
    end_run,
)
