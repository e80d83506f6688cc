"""Policy: what is decided next, given what is true. Pure and level-triggered; free to change any day.

`decide` returns decisions as facts to record. The engine records them and asks again until there are none.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from graphlib import TopologicalSorter
from math import inf

from fleet.core import facts as f
from fleet.core import outages, rollback
from fleet.core.approval import approved, awaits_approval, passing, untouched
from fleet.core.areas import allowance, conversations, planning_of, seen_by
from fleet.core.blame import sent_back
from fleet.core.budget import low_budget, over_budget, over_subtask_budget, wakes
from fleet.core.calling import (
    IDLE_CALLS,
    area_is_idle,
    areas_fail,
    held,
    is_idle,
    planner_is_lost,
    unattended,
    why_call,
)
from fleet.core.commands import base_unknown
from fleet.core.endings import ends, shown, waits_until
from fleet.core.failures import how
from fleet.core.ids import SubtaskId
from fleet.core.landing import member_of, next_probes
from fleet.core.models import model_for
from fleet.core.plan import PLANNER, Plan
from fleet.core.policy import Policy
from fleet.core.remedies import ANEW, LADDER, backoff
from fleet.core.standing import standings, starts_at
from fleet.core.state import RunState, SubtaskState


def decide(state: RunState, now: float) -> tuple[f.Fact, ...]:
    """The next decisions, or none. One rule speaks at a time, so that each sees what the one before it changed."""
    if state.ended:
        return ()
    for rule in RULES:
        decisions = tuple(rule(state, now))
        if decisions:
            return decisions
    return ()


def next_wake(state: RunState, now: float) -> float | None:
    """When time alone may change what `decide` or `effects` say; None if only events can."""
    if state.ended:
        return None
    times = [starts_at(state, id_) for id_, where in standings(state, now).items() if where == "waiting"]
    times.append(state.publish_not_before)
    for planning in (planning_of(state, area) for area in conversations(state)):
        times.append(planning.not_before)
        if planning.unread.since is not None:
            times.append(planning.unread.since + state.policy.settle_s)
    if questions := state.open_questions():
        times.append(waits_until(state, questions))
    if state.policy.reviewing == "auto" and awaits_approval(state):
        times.append(state.last_at + state.policy.answer_wait_s)
    times += wakes(state, now)
    times += [outages.asked_at(state, scope, outage) for scope, outage in state.service.items()]
    times += outages.ends_at(state)
    return min((at for at in times if at > now), default=None)


def may_begin(state: RunState, now: float) -> bool:
    """Whether new work may begin: attempts and planner calls."""
    stopped = state.paused or state.draining or state.cancelled or held(state)
    return not stopped and not base_unknown(state) and over_budget(state, now) is None


# ---- rules ----------------------------------------------------------------------------------------------------------


def _cancel(state: RunState, now: float) -> Iterator[f.Fact]:
    if state.cancelled and not state.landing.probes and shown(state):
        yield f.RunEnded(at=now, ending="cancelled", why="cancelled by its operator")


def _passed(state: RunState, now: float) -> Iterator[f.Fact]:
    if ids := passing(state):
        yield f.PlanApproved(at=now, version=state.plan.version, by="the review rules", subtasks=ids, automatic=True)


def _bad_base(state: RunState, now: float) -> Iterator[f.Fact]:
    """Nobody could tell good work from bad on it; said before anything is spent."""
    if not state.base_checked or state.commits > 0:
        return
    where = f"the base {state.base_name} ({state.base[:12]})"
    if state.base_failure is not None:
        yield f.RunEnded(at=now, ending="failed", why=f"the gate can't be run on {where}: {state.base_failure.summary}")
    elif state.red_base and not state.policy.allow_red_base:
        red = ", ".join(f"{check.command} ({how(check)})" for check in state.red_base)
        why = f"the gate is red on {where} before anything was done: {red}. Mend it, or go on with --allow-red-base"
        yield f.RunEnded(at=now, ending="failed", why=why)


def _misconfigured(state: RunState, now: float) -> Iterator[f.Fact]:
    """A wrong key or model: nothing will work until someone mends it. What began since that was asked asks again."""
    failures = [
        (one.failure, one.attempts[-1].started_at if one.attempts else -inf)
        for one in state.subtasks.values()
        if one.failure is not None and one.failure.kind == "configuration"
    ]
    planner = state.planning.last_failure
    if planner is not None and planner.kind == "configuration":
        failures.append((planner, -inf))
    if not failures or held(state):
        return
    if state.spent.calls == 0 and state.commits == 0:
        yield f.RunEnded(at=now, ending="failed", why=failures[0][0].summary)
        return
    asked = [question for question in state.questions.values() if question.about is None]
    for failure, began in failures:
        if not any(question.evidence == failure.evidence and question.asked_at >= began for question in asked):
            yield f.QuestionAsked(
                at=now,
                about=None,
                question=f"Nothing new begins: {failure.summary}. Mend it, then answer anything to go on.",
                options=("go on",),
                evidence=failure.evidence,
            )
            return


def _service(state: RunState, now: float) -> Iterator[f.Fact]:
    """A human is told what the whole run waits for: at once where only a human can mend it, else when it lasts."""
    for scope, outage in state.service.items():
        if state.spent.calls and now >= outages.asked_at(state, scope, outage):
            yield outages.question(state, scope, outage, now)


def _unreachable(state: RunState, now: float) -> Iterator[f.Fact]:
    """Somebody is told. What is planned goes on without it, and it is asked again and again."""
    planning, last = state.planning, state.planning.last_failure
    if planning.failures < state.policy.max_planner_failures or last is None or held(state) or planner_is_lost(state):
        return
    if state.spent.calls == 0 and not state.subtasks:
        yield f.RunEnded(at=now, ending="failed", why=last.summary)
        return
    yield f.QuestionAsked(
        at=now,
        about=None,
        question=f"The planner failed {planning.failures} times in a row: {last.summary}. What is planned goes on, and "
        "it is asked again by itself; answer anything to ask it now.",
        options=("ask it now",),
        evidence=last.evidence,
        planner=True,
    )


def _remedies(state: RunState, now: float) -> Iterator[f.Fact]:
    if state.cancelled:
        return
    for subtask in state.subtasks.values():
        if subtask.failure is None or subtask.remedy is not None or subtask.question is not None or subtask.closed:
            continue
        decision = rollback.instead(state, subtask.id, subtask.failure, _remedy(state, subtask, subtask.failure, now))
        yield decision
        if isinstance(decision, f.RollbackStarted | f.RunEnded):  # nothing is left to be decided about the others
            return


def _remedy(state: RunState, subtask: SubtaskState, failure: f.Failure, now: float) -> f.Fact:
    number, policy = len(subtask.attempts), state.policy
    action = state.spec(subtask.id).failure_action
    wait = now + backoff(policy, key=f"{state.run}/{subtask.id}", failures=subtask.counted + subtask.retries)
    again = f.RemedyChosen(at=now, subtask=subtask.id, number=number, remedy="retry", not_before=wait)
    if failure.kind == "spent":  # it goes on where it can: when there is a budget again
        return again.model_copy(update={"not_before": now})
    if not LADDER[failure.kind].counts:
        if subtask.retries <= policy.max_retries:
            return again
        if failure.kind == "transient" and state.spent.calls == 0:  # the service was never there
            return f.RunEnded(at=now, ending="failed", why=failure.summary)
        return _ask(subtask, failure, now)
    if LADDER[failure.kind].first == "resolve" and _may_resolve(subtask, policy):
        return f.RemedyChosen(at=now, subtask=subtask.id, number=number, remedy="resolve", guidance=ANEW)
    if action == "abort":
        return f.RunEnded(at=now, ending="aborted", why=f"{subtask.id} failed: {failure.summary}")
    if action == "skip":
        return f.RemedyChosen(at=now, subtask=subtask.id, number=number, remedy="skip")
    if action == "ask" or subtask.counted >= policy.max_attempts or _refused_again(subtask):
        return _ask(subtask, failure, now)
    if (spent := over_subtask_budget(state, subtask.id, now)) is not None:
        return _ask(subtask, failure.model_copy(update={"summary": f"{failure.summary}; {spent}"}), now)
    if action == "retry":
        return again
    if state.undoing is not None:  # half undone: nobody but a human should have ideas now
        return _ask(subtask, failure, now)
    return f.RemedyChosen(at=now, subtask=subtask.id, number=number, remedy="planner")


def _may_resolve(subtask: SubtaskState, policy: Policy) -> bool:
    """Once, and only for work that was good by itself: a second conflict says something about the plan."""
    clashed = [attempt for attempt in subtask.attempts if attempt.failure and attempt.failure.kind == "conflict"]
    return len(clashed) == 1 and clashed[-1].verified and subtask.counted < policy.max_attempts


def _refused_again(subtask: SubtaskState) -> bool:
    """One other approach to what a model refused, then a human: a third wording seldom helps, and costs each time."""
    counted = [attempt for attempt in subtask.attempts if attempt.failure and LADDER[attempt.failure.kind].counts]
    lately = counted[len(counted) - subtask.counted :]
    return sum(attempt.failure is not None and attempt.failure.kind == "refusal" for attempt in lately) > 1


def _ask(subtask: SubtaskState, failure: f.Failure, now: float) -> f.Fact:
    tries = len(subtask.attempts)
    said = failure.summary.rstrip(".")
    return f.QuestionAsked(
        at=now,
        about=subtask.id,
        question=f"{subtask.id} failed {tries} time{'s' * (tries != 1)}; last: {said}. How should it go on?",
        options=("retry with this guidance: …", "drop it"),
        evidence=failure.evidence,
    )


def _low(state: RunState, now: float) -> Iterator[f.Fact]:
    if not state.low and (why := low_budget(state, now)) is not None:
        yield f.BudgetRanLow(at=now, why=why)


def _starts(state: RunState, now: float) -> Iterator[f.Fact]:
    if not may_begin(state, now):
        return
    free = state.policy.workers - len(state.running())
    if state.policy.budget_attempts is not None:
        free = min(free, state.policy.budget_attempts - state.attempts)
    free = max(0, free)
    where = standings(state, now)
    ready = [id_ for id_, standing in where.items() if standing == "ready" and approved(state, id_)]
    areas = [id_ for id_ in ready if state.spec(id_).worker == PLANNER]  # these take no worker's place
    weight = dependents(state.plan)
    work = sorted((id_ for id_ in ready if id_ not in areas), key=lambda id_: -weight[id_])
    for id_ in (*areas, *work[:free]):
        spec, subtask = state.spec(id_), state.subtasks[id_]
        yield f.AttemptStarted(
            at=now,
            subtask=id_,
            number=len(subtask.attempts) + 1,
            worker=spec.worker,
            model=model_for(state.policy, spec, subtask),
            base=state.tip,
            strategy=subtask.strategy,
            guidance=subtask.guidance,
            allowance=allowance(state, id_) if id_ in areas else None,
        )


@lru_cache(maxsize=64)
def _weights(needs: tuple[tuple[SubtaskId, tuple[SubtaskId, ...]], ...]) -> dict[SubtaskId, int]:
    heights = {id_: 1 for id_, _ in needs}
    order = TopologicalSorter(dict(needs))  # in a loop, not recursive: a chain may be as long as the plan
    direct = dict(needs)
    for id_ in reversed(tuple(order.static_order())):
        for need in direct.get(id_, ()):
            heights[need] = max(heights.get(need, 1), heights.get(id_, 1) + 1)
    return heights


def dependents(plan: Plan) -> dict[SubtaskId, int]:
    """How long the chain behind each subtask is: the longest goes first, so that the end comes soonest."""
    return _weights(tuple((subtask.id, subtask.depends_on) for subtask in plan.subtasks))


def _batches(state: RunState, now: float) -> Iterator[f.Fact]:
    for number, members in enumerate(next_probes(state), state.landing.batches + 1):
        yield f.BatchFormed(at=now, number=number, members=members)


def _guilty(state: RunState, now: float) -> Iterator[f.Fact]:
    """The one suspect that is left goes back; on thin evidence it is tested once more while the queue goes on."""
    if len(state.landing.suspects) != 1:
        return
    [id_] = state.landing.suspects
    if state.landing.reds <= state.policy.reruns:
        number = state.landing.batches + 1
        yield f.BatchFormed(at=now, number=number, members=(member_of(state, id_),), alone=True)
    else:
        yield sent_back(state, id_, state.landing.suspicion, now)


def _planner(state: RunState, now: float) -> Iterator[f.Fact]:
    if not may_begin(state, now) or state.undoing is not None:
        return
    where, calls = standings(state, now), state.planning.calls
    unapproved = untouched(state)
    for area in reversed(conversations(state)):  # the run's own last: it is not idle while an area's is called
        planning = planning_of(state, area)
        if area is None and calls > state.planning.calls:
            return
        if planning.open is not None or planning.synthesis is not None or now < planning.not_before:
            continue
        why = why_call(state, area, where, now)
        if unapproved and why != "answers":
            continue
        if why is not None and calls < state.policy.max_planner_calls:
            calls += 1
            yield f.PlannerCalled(at=now, call=calls, why=why, area=area)


def _left_alone(state: RunState, now: float) -> Iterator[f.Fact]:
    """The planner had its chances and left failures lying, or has not answered to the end: a human is asked."""
    where = standings(state, now)
    spent_up = state.planning.calls >= state.policy.max_planner_calls
    for area in conversations(state):
        lost = area is None and planner_is_lost(state) and now >= waits_until(state, state.open_questions())
        if planning_of(state, area).idle_calls < IDLE_CALLS and not spent_up and not lost:
            continue
        seen = {id_: where[id_] for id_ in seen_by(state, area)}
        if not (is_idle(state, where, now) if area is None else area_is_idle(state, area, seen, now)):
            continue
        for id_ in unattended(seen):
            subtask = state.subtasks[id_]
            if subtask.failure is not None:
                yield _ask(subtask, subtask.failure, now)


RULES: tuple[Callable[[RunState, float], Iterator[f.Fact]], ...] = (
    _cancel,
    _passed,
    _bad_base,
    _misconfigured,
    _service,
    _unreachable,
    _guilty,
    _remedies,
    _batches,
    _low,
    _starts,
    areas_fail,
    _planner,
    _left_alone,
    ends,
)
