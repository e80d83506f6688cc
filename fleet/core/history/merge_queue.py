"""The merge queue: how facts about batches change it.

Batches are prefixes of the queue, tested side by side. A long one merges first what a short one
merges, in the same order on the same tip, so their results combine: below a green one every entry is innocent, and a
red one holds a guilty entry among those still queued. `policy/landing.py` decides what to test next.
"""

from collections.abc import Collection

from fleet.core.base.ids import SubtaskId
from fleet.core.facts.facts import BatchFormed, BatchTested
from fleet.core.history.replace import replace
from fleet.core.state.state import Batch, Landing, RunState, TestedBatch
from fleet.core.state.status import landing_order

REMEMBERED = 200  # outcomes kept: enough to notice one failure in a hundred


def enqueue(landing: Landing, id_: SubtaskId) -> Landing:
    return replace(landing, queue=(*landing.queue, id_))


def put_in_order(state: RunState) -> RunState:
    """The state with its queue in the order of the plan, where subtasks land in that order."""
    if not state.policy.in_order:
        return state
    place = {id_: number for number, id_ in enumerate(landing_order(state))}
    queue = tuple(sorted(state.landing.queue, key=lambda id_: place.get(id_, len(place))))
    return replace(state, landing=replace(state.landing, queue=queue))


def form_batch(landing: Landing, fact: BatchFormed) -> Landing:
    """The queue with one more batch. A suspect that is tested alone leaves the queue and the suspects."""
    if fact.alone:
        landing = remove(landing, [member.subtask for member in fact.members])
    batch = Batch(number=fact.number, members=fact.members, formed_at=fact.at, alone=fact.alone)
    return replace(landing, open_batches=(*landing.open_batches, batch), batches=fact.number)


def close_batch(landing: Landing, fact: BatchTested) -> Landing:
    """The queue after a batch's result. Other batches that this result answers are over, too."""
    after = _queue_after(landing, fact)
    batch = landing.open_batch(fact.number)
    if batch is None:
        return after
    members = tuple(member.subtask for member in batch.members)
    tested = TestedBatch(
        number=fact.number,
        members=members,
        alone=batch.alone,
        at=fact.at,
        seconds=round(fact.at - batch.formed_at, 3),
        landed=tuple(member.subtask for member in fact.landed),
        sent_back=tuple(ejected.subtask for ejected in fact.ejected),
        red=fact.red,
        suspects=members if batch.alone and fact.red else after.suspects,
        failed=tuple(check.command for check in fact.checks if not check.fine),
        gate_runs=fact.gate_runs,
    )
    return replace(after, tested=landing.tested.append(tested))


def _queue_after(landing: Landing, fact: BatchTested) -> Landing:
    batch = landing.open_batch(fact.number)
    members = tuple(member.subtask for member in batch.members) if batch is not None else ()
    others = tuple(other for other in landing.open_batches if other.number != fact.number)
    landing = replace(landing, open_batches=others, red=landing.red + fact.red)
    landing = _note_outcomes(landing, True, times=len(fact.landed))
    removed = {member.subtask for member in fact.landed} | {ejected.subtask for ejected in fact.ejected}
    guilty = {ejected.subtask for ejected in fact.ejected if ejected.failure.kind == "integration"}
    landing = remove(landing, removed, guilty=guilty)
    if batch is not None and batch.alone:
        landing = _note_outcomes(landing, False, times=int(fact.red and not guilty))  # its failure is the next fact
        cleared = tuple(id_ for id_ in members if id_ not in removed and not fact.red)
        return replace(landing, queue=(*landing.queue, *cleared))
    if not fact.red:
        return landing
    suspects = tuple(id_ for id_ in fact.suspects or members if id_ in landing.queue)
    if not suspects or 0 < len(landing.suspects) <= len(suspects):
        return landing
    pending = tuple(other for other in landing.open_batches if not other.holds(suspects))
    return replace(landing, suspects=suspects, suspicion=fact.checks, open_batches=pending)


def restart(landing: Landing, *, without: Collection[SubtaskId], again: Collection[SubtaskId]) -> Landing:
    """The queue on another tip: no merge and no suspicion on the old one counts any more."""
    alone = [member.subtask for batch in landing.open_batches if batch.alone for member in batch.members]
    queue = tuple(id_ for id_ in dict.fromkeys((*again, *landing.queue, *alone)) if id_ not in without)
    return replace(landing, queue=queue, open_batches=(), suspects=(), suspicion=())


def remove(landing: Landing, ids: Collection[SubtaskId], *, guilty: Collection[SubtaskId] = ()) -> Landing:
    """The queue without some entries. Guilty ones end the suspicion and every batch they are part of."""
    landing = _note_outcomes(landing, False, times=len(guilty))
    suspects = tuple(id_ for id_ in landing.suspects if id_ not in ids)
    if any(id_ in landing.suspects for id_ in guilty):
        suspects = ()
    innocent = (batch for batch in landing.open_batches if not any(batch.holds((id_,)) for id_ in guilty))
    shorter = (replace(b, members=tuple(member for member in b.members if member.subtask not in ids)) for b in innocent)
    return replace(
        landing,
        queue=tuple(id_ for id_ in landing.queue if id_ not in ids),
        suspects=suspects,
        suspicion=landing.suspicion if suspects else (),
        open_batches=tuple(batch for batch in shorter if batch.members),
    )


def keep_only(landing: Landing, ids: Collection[SubtaskId]) -> Landing:
    """The queue without all other entries."""
    return remove(landing, [id_ for id_ in landing.queue if id_ not in ids])


def _note_outcomes(landing: Landing, good: bool, *, times: int) -> Landing:
    return replace(landing, outcomes=(*landing.outcomes, *([good] * times))[-REMEMBERED:])
