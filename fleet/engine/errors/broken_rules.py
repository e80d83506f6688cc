"""A rule of policy that raises: which subtasks it raises about, and what follows once those are set aside.

Rules are pure, so they may be asked about states that never were. A rule that raises whatever the state is decides
nothing; `bugs.py` says what happens then.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from fleet.core.base.ids import SubtaskId
from fleet.core.history.evolve import evolve
from fleet.core.policy.decide import Rule
from fleet.core.policy.remedies import aside_question
from fleet.core.state import facts as f
from fleet.core.state.state import RunState
from fleet.core.state.subtasks import Mark

MOST = 500  # subtasks that are looked at: those that a rule may decide about at one time
MOST_ASIDE = 20  # that one rule sets aside at one time: it is hardly about that many
Decided = tuple[tuple[f.Fact, ...], RunState]
"""Facts, and the state after them."""


@dataclass(frozen=True, slots=True)
class BrokenRule:
    """A rule that raised in a state."""

    rule: Rule
    state: RunState
    now: float
    failure: f.Failure
    """What is said of the subtasks that are set aside."""

    def decide(self) -> Decided | None:
        """What the rule decides when it is asked again, or else the facts that set aside what it raises about.

        None if it raises about no single subtask.
        """
        if (again := self._asked(self.state)) is not None:
            return again
        candidates = _candidates(self.state)
        if not candidates or not self._is_fine_without(candidates):
            return None
        aside = list[SubtaskId]()
        while not self._is_fine_without(aside):
            if len(aside) == MOST_ASIDE:
                return None
            aside.append(self._first_guilty(candidates, aside))
        return self._set_aside(aside)

    def _first_guilty(self, candidates: list[SubtaskId], aside: list[SubtaskId]) -> SubtaskId:
        """The first candidate with which the rule raises where all those behind it are set aside."""
        fine, raises = 0, len(candidates)  # how many of them are left in
        while raises - fine > 1:
            middle = (fine + raises) // 2
            if self._is_fine_without([*aside, *candidates[middle:]]):
                fine = middle
            else:
                raises = middle
        return candidates[raises - 1]

    def _is_fine_without(self, ids: Iterable[SubtaskId]) -> bool:
        _, state = self._set_aside(ids)
        return self._asked(state) is not None

    def _set_aside(self, ids: Iterable[SubtaskId]) -> Decided:
        facts, state = list[f.Fact](), self.state
        for id_ in dict.fromkeys(ids):
            if (attempt := state.subtasks[id_].current) is not None:
                facts.append(f.AttemptFailed(at=self.now, subtask=id_, number=attempt.number, failure=self.failure))
                state = evolve(state, facts[-1])
            facts.append(aside_question(state.subtasks[id_], self.failure, self.now))
            state = evolve(state, facts[-1])
        return tuple(facts), state

    def _asked(self, state: RunState) -> Decided | None:
        """What the rule decides in a state; None if it raises."""
        try:
            facts = tuple(self.rule(state, self.now))
            return facts, reduce(evolve, facts, state)
        except Exception:  # noqa: BLE001 - whether it raises is the question
            return None


def _candidates(state: RunState) -> list[SubtaskId]:
    """The subtasks that may be set aside without a loss: no agent works on them, and no batch under test has them."""
    subtasks = state.subtasks
    undecided = subtasks.open & subtasks.marked(Mark.FAILED) & ~subtasks.marked(Mark.UNDERWAY)
    chosen = (undecided | subtasks.startable) & ~subtasks.marked(Mark.ASKED)
    tested = {member.subtask for batch in state.landing.open_batches for member in batch.members}
    queued = [id_ for id_ in state.landing.queue if id_ not in tested]
    return [*queued, *subtasks.ids(chosen)][:MOST]
