"""What a run finds when it goes on: the journal's words held against what git still has, and the difference as a fact.

Knows no git. Whoever does says which commits are there; what follows from that for subtasks is told here.
"""

from collections.abc import Sequence
from typing import Protocol

from fleet.core import facts as f
from fleet.core.evolve import evolve
from fleet.core.losses import merged
from fleet.core.plan import PLANNER
from fleet.core.state import Attempt, RunState
from fleet.ports import Named, Recovered

UNWRITTEN_S = 600.0  # how long before the last fact an object may have been written that no disk has seen


class Hands(Protocol):
    async def mended(self, named: Named) -> Recovered:
        """What is left, once all was restored that could be."""
        ...


class Memory(Protocol):
    def append(self, facts: Sequence[f.Fact]) -> None: ...


async def mended(state: RunState, memory: Memory, hands: Hands, now: float) -> RunState:
    """The state that an engine may go on with. A run that never began rests on nothing yet."""
    if state.epoch == 0:
        return state
    lost = loss(state, await hands.mended(named(state)), now)
    if lost is None:
        return state
    memory.append([lost])
    return evolve(state, lost)


def named(state: RunState) -> Named:
    """The commits that a run rests on."""
    attempts, kept, landed, underway = dict[tuple[str, int], str](), dict[tuple[str, int], str](), list[str](), set()
    for subtask in state.subtasks.values():
        for attempt in subtask.attempts:
            if attempt.commit is not None and attempt.worker != PLANNER and not attempt.unchanged:
                (kept if attempt.kept else attempts)[subtask.id, attempt.number] = attempt.commit
        if (current := subtask.current) is not None:
            underway.add((subtask.id, current.number))
        if merged(subtask) and subtask.attempts[-1].tested and subtask.landed is not None:
            landed.append(subtask.landed)
    died = state.engine_since is not None
    return Named(
        run=state.run,
        base=state.base,
        tip=state.tip,
        attempts=attempts,
        kept=kept,
        landed=tuple(landed),
        underway=frozenset(underway),
        published=state.published,
        written_since=state.last_at - UNWRITTEN_S if died else None,
    )


def loss(state: RunState, found: Recovered, now: float) -> f.WorkLost | None:
    """What is to be done again, where anything is."""
    again, anew = list[str](), list[str]()
    for subtask in state.subtasks.values():
        last = subtask.last
        if last is None or last.worker == PLANNER or last.unchanged:
            continue
        fallen = merged(subtask) and found.tip != state.tip and subtask.landed not in found.below
        if not fallen and (subtask.landed is not None or subtask.current is None):
            continue  # it stands, or nothing is expected of it any more
        if _is_gone(last, found) or (not fallen and _stood_above(state, last, found)):
            anew.append(subtask.id)
        elif fallen:
            again.append(subtask.id)
    if not (found.gone or again or anew) and found.shown:
        return None
    return f.WorkLost(
        at=now,
        tip=found.tip,
        commits=tuple(sorted(found.gone)),
        again=_in_landing_order(state, again),
        anew=tuple(anew),
        unpublished=not found.shown,
    )


def _is_gone(attempt: Attempt, found: Recovered) -> bool:
    return attempt.commit is not None and attempt.commit in found.gone


def _stood_above(state: RunState, attempt: Attempt, found: Recovered) -> bool:
    """Whether it began on a tip that is not on the branch any more, and is not done."""
    return attempt.commit is None and found.tip != state.tip and attempt.base not in {state.base, *found.below}


def _in_landing_order(state: RunState, ids: list[str]) -> tuple[str, ...]:
    """As they stood on the branch: what one of them needs comes before it."""
    order = {id_: place for place, id_ in enumerate(id_ for tried in state.landing.tried for id_ in tried.landed)}
    return tuple(sorted(ids, key=lambda id_: order.get(id_, len(order))))
