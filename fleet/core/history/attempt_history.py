"""Applies facts about attempts, from their start to their failure, landing or interruption."""

from collections.abc import Iterable, Sequence
from typing import assert_never

from fleet.core.base.ids import SubtaskId
from fleet.core.base.usage import Cost
from fleet.core.facts import facts as f
from fleet.core.history import merge_queue, planner_history, subtask_sets
from fleet.core.history.replace import replace
from fleet.core.history.subtask_sets import (
    add_failure,
    add_remedy,
    change_attempt,
    give_up,
    put_subtask,
    recover,
    was_helped,
)
from fleet.core.plans.plan import PLANNER
from fleet.core.state.state import POLICY, ChosenRemedy, RungKey, RunState, Trouble
from fleet.core.state.subtasks import Attempt


def after(state: RunState, fact: f.AttemptFact) -> RunState:
    match fact:
        case f.AttemptStarted():
            return _started(state, fact)
        case f.WorkerStarted():
            return _worker_started(state, fact)
        case f.AttemptCommitted() | f.AttemptUnchanged():
            return _reported_done(state, fact)
        case f.AttemptVerified():
            return _verified(state, fact)
        case f.AttemptFailed():
            return _failed(state, fact)
        case f.RemedyChosen():
            return _remedied(state, fact)
        case _:
            assert_never(fact)


def _started(state: RunState, fact: f.AttemptStarted) -> RunState:
    attempt = Attempt(
        number=fact.number,
        worker=fact.worker,
        model=fact.model,
        base=fact.base,
        strategy=fact.strategy,
        guidance=fact.guidance,
        started_at=fact.at,
        allowance=fact.allowance,
        effort=fact.effort,
        size=fact.size or "medium",
        choice=fact.choice,
    )
    subtask = state.subtasks[fact.subtask]
    started = replace(subtask, attempts=(*subtask.attempts, attempt), failure=None)
    state = replace(state, subtasks=subtask_sets.put(state.subtasks, started), attempts=state.attempts + 1)
    return planner_history.open_area(state, fact.subtask) if fact.worker == PLANNER else state


def _worker_started(state: RunState, fact: f.WorkerStarted) -> RunState:
    def started(attempt: Attempt) -> Attempt:
        return replace(attempt, working=True, worked=True, before=fact.before, node=fact.node, instructions=())

    state = change_attempt(state, fact.subtask, started, only=fact.number)
    working = state.working()
    return replace(state, peak=working) if working > state.peak else state


def _reported_done(state: RunState, fact: f.AttemptCommitted | f.AttemptUnchanged) -> RunState:
    def reported(attempt: Attempt) -> Attempt:
        done = replace(attempt, working=False, report=fact.report, doing="")
        if isinstance(fact, f.AttemptUnchanged):
            return replace(done, commit=attempt.base, unchanged=True)
        return replace(done, commit=fact.commit, paths=fact.paths)

    return change_attempt(state, fact.subtask, reported, only=fact.number)


def _verified(state: RunState, fact: f.AttemptVerified) -> RunState:
    """The subtask joins the merge queue. An area, whose subtasks have landed, and a step without a change are done."""
    id_ = fact.subtask
    verified = change_attempt(
        state,
        id_,
        lambda attempt: replace(attempt, verified=True, verified_at=fact.at, checks=fact.checks),
        only=fact.number,
    )
    if verified is state:
        return state
    attempt = verified.subtasks[id_].attempts[-1]
    if attempt.worker == PLANNER or attempt.unchanged:
        member = f.Member(subtask=id_, attempt=fact.number, commit=attempt.commit or state.tip, tested=True)
        return land(verified, (member,), fact.at)
    return merge_queue.put_in_order(replace(verified, landing=merge_queue.enqueue(verified.landing, id_)))


def _failed(state: RunState, fact: f.AttemptFailed) -> RunState:
    def with_work(attempt: Attempt) -> Attempt:
        return replace(
            attempt,
            commit=fact.commit or attempt.commit,
            kept=attempt.kept or fact.commit is not None,
            checks=fact.checks or attempt.checks,
            report=fact.report or attempt.report,
        )

    current = state.subtasks[fact.subtask].current
    if current is None or current.number != fact.number:
        return state
    return fail(change_attempt(state, fact.subtask, with_work), fact.subtask, fact.failure, fact.at)


def _remedied(state: RunState, fact: f.RemedyChosen) -> RunState:
    subtask = state.subtasks[fact.subtask]
    match fact.remedy:
        case "retry" | "resolve":
            guidance = fact.guidance if fact.remedy == "resolve" else subtask.guidance
            again = replace(subtask, failure=None, remedy=None, not_before=fact.not_before)
            again = replace(again, strategy=fact.remedy, guidance=guidance)
            chosen = ChosenRemedy(fact.remedy, POLICY, fact.at, after=fact.number, not_before=fact.not_before)
            return put_subtask(add_remedy(state, subtask.id, chosen), again)
        case "skip":
            state = put_subtask(state, replace(subtask, skipped=True, failure=None))
            state = give_up(state, subtask.id, "skipped", fact.at)
            return planner_history.report_to_planner(state, [subtask.id], fact.at, urgent=False)
        case "planner":
            state = put_subtask(state, replace(subtask, remedy="planner"))
            return planner_history.report_to_planner(state, [subtask.id], fact.at, urgent=True)
        case _:
            assert_never(fact.remedy)


# ---- how an attempt ends --------------------------------------------------------------------------------------------


def fail(state: RunState, id_: SubtaskId, failure: f.Failure, at: float) -> RunState:
    """End the running attempt as failed: it leaves the merge queue, and its incident opens or grows."""
    number = state.subtasks[id_].attempts[-1].number
    state = change_attempt(
        state, id_, lambda attempt: replace(attempt, working=False, failure=failure, ended_at=at, doing="")
    )
    subtask = state.subtasks[id_]
    counts = failure.kind not in f.FREE
    retries = subtask.retries + (not counts and failure.kind != "spent")
    subtask = replace(subtask, failure=failure, remedy=None, counted=subtask.counted + counts, retries=retries)
    state = planner_history.close_area(put_subtask(state, subtask), id_)
    if counts:
        state = _tally(state, subtask.attempts[-1:])
    if id_ in state.landing.queue or any(batch.holds((id_,)) for batch in state.landing.open_batches):
        guilty = [id_] if failure.kind == "integration" else []
        state = replace(state, landing=merge_queue.remove(state.landing, [id_], guilty=guilty))
    if failure.kind == "spent":  # interrupted, not failed, so no recovery is necessary
        return state
    return add_failure(state, Trouble(subtask=id_, attempt=number, kind=failure.kind, summary=failure.summary), at)


def land(state: RunState, members: Sequence[f.Member], at: float) -> RunState:
    """End running attempts as landed, and report them to their planners."""
    for member in members:
        state = _land(state, member, at)
    ids = [member.subtask for member in members]
    state = _tally(state, [state.subtasks[id_].attempts[-1] for id_ in ids])
    return planner_history.report_to_planner(state, ids, at, urgent=False)


def _land(state: RunState, member: f.Member, at: float) -> RunState:
    """This closes the subtask's incident, and that of a parent whose parts all landed."""
    subtask = state.subtasks[member.subtask]
    last = subtask.attempts[-1]
    if last.ended_at is None:
        last = replace(last, landed=member.commit, tested=member.tested, ended_at=at)
    attempts = (*subtask.attempts[:-1], last)
    state = put_subtask(state, replace(subtask, attempts=attempts, landed=member.commit, failure=None))
    state = recover(state, subtask.id, last.strategy, at, parts=False)
    parent = subtask.parent
    while parent is not None and _has_landed(state, parent):
        how: f.Strategy = "human" if was_helped(state, _parts_below(state, parent)) else "split"
        state = recover(state, parent, how, at, parts=True)
        parent = state.subtasks[parent].parent
    return state


def _tally(state: RunState, attempts: Iterable[Attempt]) -> RunState:
    """Count finished attempts for their rungs. Attempts without work or model are ignored."""
    by_key: dict[RungKey, list[Attempt]] = {}
    for attempt in attempts:
        if attempt.model is not None and attempt.worked and attempt.worker != PLANNER:
            by_key.setdefault((attempt.worker, attempt.model, attempt.effort, attempt.size), []).append(attempt)
    if not by_key:
        return state
    return replace(state, tallies={**state.tallies, **{key: _tallied(state, key, by_key[key]) for key in by_key}})


def _tallied(state: RunState, key: RungKey, attempts: Iterable[Attempt]) -> f.RungTally:
    worker, model, effort, size = key
    tally = state.tallies.get(key) or f.RungTally(worker=worker, model=model, effort=effort, size=size)
    landed, failed, priced, dollars = tally.landed, dict(tally.failed), tally.priced, tally.dollars
    for attempt in attempts:
        if attempt.failure is None:
            landed += 1
        else:
            failed[attempt.failure.kind] = failed.get(attempt.failure.kind, 0) + 1
        if attempt.spend.calls and attempt.spend.dollars is not None:
            priced, dollars = priced + 1, dollars + attempt.spend.dollars
    return tally.model_copy(update={"landed": landed, "failed": failed, "priced": priced, "dollars": dollars})


def stop_attempts(state: RunState, at: float) -> RunState:
    """End all running attempts, except those in a batch under test, which may still land."""
    members = {member.subtask for batch in state.landing.open_batches for member in batch.members}
    for subtask, _ in list(state.underway()):
        if subtask.id not in members:
            state = change_attempt(state, subtask.id, lambda attempt: replace(attempt, working=False, ended_at=at))
    return planner_history.close_calls(replace(state, landing=merge_queue.keep_only(state.landing, members)))


def _has_landed(state: RunState, id_: SubtaskId) -> bool:
    """Whether a subtask has landed, or all of its parts have."""
    subtask = state.subtasks[id_]
    if subtask.parts:
        return all(_has_landed(state, part) for part in subtask.parts)
    return subtask.landed is not None


def _parts_below(state: RunState, id_: SubtaskId) -> list[SubtaskId]:
    """The parts a subtask was split into, and their parts."""
    return [below for part in state.subtasks[id_].parts for below in (part, *_parts_below(state, part))]


# ---- review history --------------------------------------------------------------------------------------------------
# Applies facts about reviews: votes and a pending batch belong to the running attempt.


def after_review(state: RunState, fact: f.ReviewFact) -> RunState:
    match fact:
        case f.ReviewBatched():
            state = _expect(state, fact.subtask, fact.number, fact.cost)
            return change_attempt(state, fact.subtask, lambda a: replace(a, batch=fact), only=fact.number)
        case f.ReviewUnbatched():
            state = _expect(state, fact.subtask, fact.number, None)
            return change_attempt(
                state, fact.subtask, lambda a: replace(a, batch=None, unbatched=True), only=fact.number
            )
        case f.ReviewVoted():
            return _voted(state, fact)
        case f.FindingsSettled():
            settled = {**state.settled}
            for each in fact.settled:
                settled[each.subtask, each.attempt, each.finding] = each.result
            return replace(state, settled=settled)
        case _:
            assert_never(fact)


def _voted(state: RunState, fact: f.ReviewVoted) -> RunState:
    def voted(attempt: Attempt) -> Attempt:
        votes = (*attempt.votes, *fact.votes)
        return (
            replace(attempt, votes=votes, batch=None, unbatched=True) if fact.batch else replace(attempt, votes=votes)
        )

    if fact.batch:
        state = _expect(state, fact.subtask, fact.number, None)
    return change_attempt(state, fact.subtask, voted, only=fact.number)


def _expect(state: RunState, id_: SubtaskId, number: int, cost: Cost | None) -> RunState:
    """Update the highest possible cost of an attempt's pending batch. None: no pending batch."""
    pending = {key: each for key, each in state.pending_reviews.items() if key != (id_, number)}
    if cost is not None:
        pending[id_, number] = cost
    return replace(state, pending_reviews=pending)
