"""Policy: what is decided next, given what is true. Pure and level-triggered; free to change any day.

`decide` returns decisions as facts to record. The engine records them and asks again until there are none.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from graphlib import TopologicalSorter

from fleet.core import facts as f
from fleet.core.blame import sent_back
from fleet.core.budget import low_budget, over_budget, over_subtask_budget, wakes
from fleet.core.commands import base_unknown, effects, unpublished
from fleet.core.failures import how
from fleet.core.ids import SubtaskId
from fleet.core.landing import member_of, next_probes
from fleet.core.plan import Plan
from fleet.core.policy import Policy
from fleet.core.remedies import ANEW, LADDER, backoff
from fleet.core.standing import BUSY, OVER, Standing, standings, starts_at
from fleet.core.state import RunState, SubtaskState

PUBLISH_TRIES = 3
IDLE_CALLS = 2  # planner calls in a row that may lead nowhere


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
    unread = state.planning.unread
    times += [state.planning.not_before, state.publish_not_before]
    if unread.since is not None:
        times.append(unread.since + state.policy.settle_s)
    if state.open_questions():
        times.append(state.last_at + state.policy.answer_wait_s)
    times += wakes(state, now)
    return min((at for at in times if at > now), default=None)


def awaits_approval(state: RunState) -> bool:
    return state.policy.review and bool(state.plan.subtasks) and state.approved is None


def held(state: RunState) -> bool:
    """Whether something is wrong that concerns the whole run and waits for a human."""
    return any(question.about is None and question.by == "fleet" for question in state.open_questions())


def may_begin(state: RunState, now: float) -> bool:
    """Whether new work may begin: attempts and planner calls."""
    stopped = state.paused or state.draining or state.cancelled or held(state) or awaits_approval(state)
    return not stopped and not base_unknown(state) and over_budget(state, now) is None


def outcome(state: RunState) -> f.Ending:
    """Whether all landed that was tried. What the planner dropped before anyone tried it was not wanted."""

    def fine(subtask: SubtaskState) -> bool:
        return (
            bool(subtask.parts) or subtask.landed is not None or (subtask.dropped is not None and not subtask.attempts)
        )

    return "landed" if all(map(fine, state.subtasks.values())) else "partial"


# ---- rules ----------------------------------------------------------------------------------------------------------


def _cancel(state: RunState, now: float) -> Iterator[f.Fact]:
    if state.cancelled and not state.landing.probes and _shown(state):
        yield f.RunEnded(at=now, ending="cancelled", why="cancelled by its operator")


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
    """A wrong key or model: nothing will work until someone mends it."""
    failure = next(
        (s.failure for s in state.subtasks.values() if s.failure and s.failure.kind == "configuration"), None
    )
    planner = state.planning.last_failure
    if failure is None and planner is not None and planner.kind == "configuration":
        failure = planner
    if failure is None or held(state):
        return
    if state.spent.calls == 0 and state.commits == 0:
        yield f.RunEnded(at=now, ending="failed", why=failure.summary)
        return
    if not any(
        question.about is None and question.evidence == failure.evidence for question in state.questions.values()
    ):
        yield f.QuestionAsked(
            at=now,
            about=None,
            question=f"Nothing new begins: {failure.summary}. Mend it, then answer anything to go on.",
            options=("go on",),
            evidence=failure.evidence,
        )


def _unreachable(state: RunState, now: float) -> Iterator[f.Fact]:
    planning = state.planning
    if planning.failures < state.policy.max_planner_failures or planning.last_failure is None or held(state):
        return
    if state.spent.calls == 0 and not state.subtasks:
        yield f.RunEnded(at=now, ending="failed", why=planning.last_failure.summary)
        return
    yield f.QuestionAsked(
        at=now,
        about=None,
        question=f"The planner failed {planning.failures} times in a row: {planning.last_failure.summary}. Try again?",
        options=("go on",),
        evidence=planning.last_failure.evidence,
    )


def _remedies(state: RunState, now: float) -> Iterator[f.Fact]:
    if state.cancelled:
        return
    for subtask in state.subtasks.values():
        if subtask.failure is None or subtask.remedy is not None or subtask.question is not None or subtask.closed:
            continue
        yield _remedy(state, subtask, subtask.failure, now)


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
    if action == "ask" or subtask.counted >= policy.max_attempts:
        return _ask(subtask, failure, now)
    if (spent := over_subtask_budget(state, subtask.id, now)) is not None:
        return _ask(subtask, failure.model_copy(update={"summary": f"{failure.summary}; {spent}"}), now)
    if action == "retry":
        return again
    return f.RemedyChosen(at=now, subtask=subtask.id, number=number, remedy="planner")


def _may_resolve(subtask: SubtaskState, policy: Policy) -> bool:
    """Once, and only for work that was good by itself: a second conflict says something about the plan."""
    clashed = [attempt for attempt in subtask.attempts if attempt.failure and attempt.failure.kind == "conflict"]
    return len(clashed) == 1 and clashed[-1].verified and subtask.counted < policy.max_attempts


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
    if free <= 0:
        return
    where = standings(state, now)
    ready = [id_ for id_, standing in where.items() if standing == "ready"]
    weight = dependents(state.plan)
    for id_ in sorted(ready, key=lambda id_: -weight[id_])[:free]:
        spec, subtask = state.spec(id_), state.subtasks[id_]
        yield f.AttemptStarted(
            at=now,
            subtask=id_,
            number=len(subtask.attempts) + 1,
            worker=spec.worker,
            model=spec.model,
            base=state.tip,
            strategy=subtask.strategy,
            guidance=subtask.guidance,
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
    planning = state.planning
    if planning.open is not None or planning.synthesis is not None or now < planning.not_before:
        return
    if not may_begin(state, now) or planning.calls >= state.policy.max_planner_calls:
        return
    why = _why_call(state, now)
    if why is not None:
        yield f.PlannerCalled(at=now, call=planning.calls + 1, why=why)


def _why_call(state: RunState, now: float) -> str | None:
    unread, idle_calls = state.planning.unread, state.planning.idle_calls
    if unread.answers:
        return "answers"
    if not state.plan.subtasks:
        return None if state.open_questions() or idle_calls >= IDLE_CALLS else "start"
    if unread.urgent:
        return "failures"
    where = standings(state, now)
    idle = is_idle(state, where, now)
    if state.low and not state.planning.told_low and not state.given and not _nothing_open(where):
        return "budget"
    if unread and not state.given and (idle or now >= (unread.since or 0.0) + state.policy.settle_s):
        return "conclude" if idle else "reports"
    if not idle or idle_calls >= IDLE_CALLS:
        return None
    if _unattended(where) or (not state.open_questions() and not _done(state, where)):
        return "conclude"
    return None


def _nothing_open(where: dict[SubtaskId, Standing]) -> bool:
    return all(standing in OVER for standing in where.values())


def _unattended(where: dict[SubtaskId, Standing]) -> list[SubtaskId]:
    return [id_ for id_, standing in where.items() if standing in {"failed", "blocked"}]


def _done(state: RunState, where: dict[SubtaskId, Standing]) -> bool:
    """Whether a plan that came with the run has nothing left to do."""
    return state.given and _nothing_open(where)


def is_idle(state: RunState, where: dict[SubtaskId, Standing], now: float) -> bool:
    """Nothing runs, nothing may begin, and time alone will change nothing."""
    if state.planning.open is not None or state.landing.queue or state.landing.probes or base_unknown(state):
        return False
    if any(standing in BUSY for standing in where.values()):
        return False
    if held(state):
        return True
    if "ready" in where.values():
        return False
    return not any(starts_at(state, id_) > now for id_, standing in where.items() if standing == "waiting")


def _left_alone(state: RunState, now: float) -> Iterator[f.Fact]:
    """The planner had its chances and left failures lying: a human is asked."""
    if state.planning.idle_calls < IDLE_CALLS and state.planning.calls < state.policy.max_planner_calls:
        return
    where = standings(state, now)
    if not is_idle(state, where, now):
        return
    for id_ in _unattended(where):
        subtask = state.subtasks[id_]
        if subtask.failure is not None:
            yield _ask(subtask, subtask.failure, now)


def _ends(state: RunState, now: float) -> Iterator[f.Fact]:
    where = standings(state, now)
    if state.planning.open is not None or not _shown(state) or awaits_approval(state) or state.paused:
        return
    if (spent := over_budget(state, now)) is not None:
        if not effects(state, now) and not state.landing.queue:
            finished = bool(where) and all(standing in OVER for standing in where.values())
            yield f.RunEnded(at=now, ending=outcome(state) if finished else "budget", why=spent)
        return
    if not is_idle(state, where, now) or state.draining:
        return
    planning = state.planning
    if planning.synthesis is not None or _done(state, where):
        why = planning.synthesis or "everything in the plan is done"
        yield f.RunEnded(at=now, ending=outcome(state), why=f"{why}{_never_green(state)}")
    elif questions := state.open_questions():
        if now >= state.last_at + state.policy.answer_wait_s:
            ids = ", ".join(question.id for question in questions)
            yield f.RunEnded(at=now, ending="partial", why=f"nobody answered {ids}")
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


def _shown(state: RunState) -> bool:
    """Whether the user's result branch shows what landed, or will not in spite of trying."""
    return not unpublished(state) or state.publish_failures >= PUBLISH_TRIES


RULES: tuple[Callable[[RunState, float], Iterator[f.Fact]], ...] = (
    _cancel,
    _bad_base,
    _misconfigured,
    _unreachable,
    _guilty,
    _remedies,
    _batches,
    _low,
    _starts,
    _planner,
    _left_alone,
    _ends,
)
