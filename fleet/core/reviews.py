"""What was approved and rejected, as facts change it. A part of history, as `queue.py` is."""

from collections.abc import Collection
from dataclasses import replace

from fleet.core import facts as f
from fleet.core.approval import waiting
from fleet.core.ids import SubtaskId
from fleet.core.state import Review, RunState


def concerned(state: RunState, named: Collection[SubtaskId] | None) -> tuple[SubtaskId, ...]:
    """What a word about the plan is about: what it names, or all that waits."""
    return tuple(id_ for id_ in state.plan.ids if id_ in named) if named is not None else waiting(state)


def approved(state: RunState, fact: f.PlanApproved) -> RunState:
    yes = concerned(state, fact.subtasks)
    cleared = {**state.cleared, **{id_: state.spec(id_) for id_ in yes}}
    review = Review(fact.version, yes, fact.by, fact.at, automatic=fact.automatic)
    after = replace(state, cleared=cleared, reviews=(*state.reviews, review))
    if fact.automatic:
        return after
    left = waiting(after) if after.policy.reviewing is not None else ()
    return _shelved(replace(after, approved=fact.version), left)


def rejected(state: RunState, fact: f.PlanRejected) -> RunState:
    no = concerned(state, fact.subtasks)
    review = Review(fact.version, no, fact.by, fact.at, rejected=True, why=fact.reason)
    cleared = {id_: spec for id_, spec in state.cleared.items() if id_ not in no}
    return _shelved(replace(state, cleared=cleared, reviews=(*state.reviews, review)), no)


def _shelved(state: RunState, ids: Collection[SubtaskId]) -> RunState:
    return replace(state, shelved={**state.shelved, **{id_: state.spec(id_) for id_ in ids}})
