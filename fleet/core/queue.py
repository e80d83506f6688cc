"""History of the landing queue: how what happened changes it. The part of `evolve` that stands by itself.

Probes are prefixes of the queue that are tested side by side. What is merged for a short one is merged first for a long
one, in the same order on the same tip, so their results can be put together: below a green one everybody is innocent,
and a red one holds a guilty one among those that are still queued. Nothing here decides what to test next.
"""

from collections.abc import Collection
from dataclasses import replace

from fleet.core.facts import BatchFormed, BatchTested
from fleet.core.ids import SubtaskId
from fleet.core.state import Batch, Landing, Tried

REMEMBERED = 200  # outcomes kept: enough to tell one failure in a hundred from none


def joined(landing: Landing, id_: SubtaskId) -> Landing:
    return replace(landing, queue=(*landing.queue, id_))


def formed(landing: Landing, fact: BatchFormed) -> Landing:
    """A suspect that is tested alone leaves the queue, and the suspicion goes with it."""
    if fact.alone:
        landing = without(landing, [member.subtask for member in fact.members])
    probe = Batch(number=fact.number, members=fact.members, formed_at=fact.at, alone=fact.alone)
    return replace(landing, probes=(*landing.probes, probe), batches=fact.number)


def tested(landing: Landing, fact: BatchTested) -> Landing:
    """The queue after a probe's result. Probes that this result answers, too, are over with it."""
    after = _tested(landing, fact)
    probe = landing.probe(fact.number)
    if probe is None:
        return after
    members = tuple(member.subtask for member in probe.members)
    tried = Tried(
        number=fact.number,
        members=members,
        alone=probe.alone,
        at=fact.at,
        seconds=fact.at - probe.formed_at,
        landed=tuple(member.subtask for member in fact.landed),
        ejected=tuple(out.subtask for out in fact.ejected),
        red=fact.red,
        suspects=members if probe.alone and fact.red else after.suspects,
        failed=tuple(check.command for check in fact.checks if not check.fine),
        gate_runs=fact.gate_runs,
    )
    return replace(after, tried=(*landing.tried, tried))


def _tested(landing: Landing, fact: BatchTested) -> Landing:
    probe = landing.probe(fact.number)
    members = tuple(member.subtask for member in probe.members) if probe is not None else ()
    others = tuple(other for other in landing.probes if other.number != fact.number)
    landing = replace(landing, probes=others, red=landing.red + fact.red)
    landing = _noted(landing, True, times=len(fact.landed))
    gone = {member.subtask for member in fact.landed} | {out.subtask for out in fact.ejected}
    guilty = {out.subtask for out in fact.ejected if out.failure.kind == "integration"}
    landing = without(landing, gone, guilty=guilty)
    if probe is not None and probe.alone:
        back = tuple(id_ for id_ in members if id_ not in gone and not fact.red)
        return replace(landing, queue=(*landing.queue, *back))
    if not fact.red:
        return landing
    suspects = tuple(id_ for id_ in fact.suspects or members if id_ in landing.queue)
    if not suspects or 0 < len(landing.suspects) <= len(suspects):
        return landing
    pending = tuple(other for other in landing.probes if not other.holds(suspects))
    return replace(landing, suspects=suspects, suspicion=fact.checks, reds=landing.reds + 1, probes=pending)


def begun_anew(landing: Landing, *, gone: Collection[SubtaskId], back: Collection[SubtaskId]) -> Landing:
    """The queue on another tip: nothing that was merged or suspected on the old one counts any more."""
    alone = [member.subtask for probe in landing.probes if probe.alone for member in probe.members]
    queued = dict.fromkeys((*back, *landing.queue, *alone))
    left = tuple(id_ for id_ in queued if id_ not in gone)
    return replace(landing, queue=left, probes=(), suspects=(), reds=0, suspicion=())


def without(landing: Landing, gone: Collection[SubtaskId], *, guilty: Collection[SubtaskId] = ()) -> Landing:
    """The queue when some left it. The guilty take the suspicion and every probe they are part of with them."""
    landing = _noted(landing, False, times=len(guilty))
    left = tuple(id_ for id_ in landing.suspects if id_ not in gone)
    if any(id_ in landing.suspects for id_ in guilty):
        left = ()
    kept = (probe.without(gone) for probe in landing.probes if not any(probe.holds((id_,)) for id_ in guilty))
    return replace(
        landing,
        queue=tuple(id_ for id_ in landing.queue if id_ not in gone),
        suspects=left,
        suspicion=landing.suspicion if left else (),
        reds=landing.reds if left else 0,
        probes=tuple(probe for probe in kept if probe.members),
    )


def only(landing: Landing, kept: Collection[SubtaskId]) -> Landing:
    """The queue when nothing else may land any more."""
    return without(landing, [id_ for id_ in landing.queue if id_ not in kept])


def _noted(landing: Landing, good: bool, *, times: int) -> Landing:
    return replace(landing, outcomes=(*landing.outcomes, *([good] * times))[-REMEMBERED:])
