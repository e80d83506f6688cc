"""History: computes the state after each fact. Pure and total, with a fixed meaning.

Each module of `history/` handles the facts of one subject. No decisions are made here.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, get_args

from fleet.core.facts import facts as f
from fleet.core.facts.facts import Fact
from fleet.core.history import attempt_history, landing_history, plan_history, run_history
from fleet.core.history.replace import replace
from fleet.core.state.state import RunState


def evolve(state: RunState | None, fact: f.Fact) -> RunState:
    """Return the state after `fact`. A journal must start with `RunStarted`."""
    if isinstance(fact, f.RunStarted):
        return run_history.start(fact)
    if state is None:
        raise ValueError(f"the first fact of a run must be run_started, not {fact.kind}")
    after = _AFTER[type(fact)](state, fact)
    if fact.at <= after.last_at:  # a request may be recorded long after it was made
        return after
    return replace(after, last_at=fact.at)


Step = tuple[f.Fact, RunState]
"""A fact, and the state after it."""


def applied(state: RunState, facts: Iterable[f.Fact]) -> list[Step]:
    """The facts, each with the state after it."""
    return [(fact, state := evolve(state, fact)) for fact in facts]


After = Callable[[RunState, Any], RunState]
_MODULES: tuple[tuple[Any, After], ...] = (
    (f.RunFact, run_history.after),
    (f.PlanFact, plan_history.after),
    (f.AttemptFact, attempt_history.after),
    (f.LandingFact, landing_history.after),
    (f.PeopleFact, plan_history.after_people),
    (f.NodeFact, run_history.after_node),
    (f.ReviewFact, attempt_history.after_review),
)
_AFTER: dict[type, After] = {kind: after for union, after in _MODULES for kind in get_args(union)}
"""By the class of a fact. mypy checks that each module handles all of its facts, a test that all classes are here."""


# ---- follower --------------------------------------------------------------------------------------------------------
# Follows a journal: reads new facts, applies them to the state, and remembers how far it has read.


SLICE = 200  # facts per read; a caller may stop between two slices

OnFact = Callable[[RunState | None, Fact, RunState], None]
"""Called with each new fact, and the state before and after it."""


class FactSource(Protocol):
    """A journal."""

    def facts(self, after: int, limit: int) -> Sequence[tuple[int, Fact]]:
        """Return at most `limit` facts after number `after`, with their numbers."""
        ...

    def changed(self) -> bool:
        """Whether there may be new facts since the last call."""
        ...


class Follower:
    """The state of one run, from the facts read so far."""

    def __init__(self, on_fact: OnFact | None = None) -> None:
        self.state: RunState | None = None
        self.seq = 0
        self.loaded = False
        """Whether the journal was read to its end."""
        self.on_fact = on_fact

    def catch_up(self, source: FactSource, may_continue: Callable[[], bool] = lambda: True) -> bool:
        """Apply at least one slice of new facts, and return whether there were any."""
        if self.loaded and not source.changed():
            return False
        before = self.seq
        while True:
            new = source.facts(self.seq, SLICE)
            for seq, fact in new:
                self._apply(seq, fact)
            self.loaded = len(new) < SLICE
            if self.loaded or not may_continue():
                return self.seq != before

    def _apply(self, seq: int, fact: Fact) -> None:
        before, after = self.state, evolve(self.state, fact)
        self.state, self.seq = after, seq
        if self.on_fact is not None:
            self.on_fact(before, fact, after)
