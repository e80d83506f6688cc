"""How facts about reviews change the state: votes and a pending batch belong to the attempt under way."""

from typing import assert_never

from fleet.core.base.ids import SubtaskId
from fleet.core.base.usage import Cost
from fleet.core.history.replace import replace
from fleet.core.history.subtask_history import change_attempt
from fleet.core.state import facts as f
from fleet.core.state.state import RunState
from fleet.core.state.subtask_state import Attempt


def after(state: RunState, fact: f.ReviewFact) -> RunState:
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
    """What the pending batch of an attempt may cost; None: there is none any more."""
    pending = {key: each for key, each in state.pending_reviews.items() if key != (id_, number)}
    if cost is not None:
        pending[id_, number] = cost
    return replace(state, pending_reviews=pending)
