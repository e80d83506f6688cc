"""History: the state after each fact. Pure and total, and its meaning never changes.

Each module of `history/` handles the facts of one subject. Nothing here decides anything.
"""

from collections.abc import Callable
from typing import Any, get_args

from fleet.core.history import (
    attempt_history,
    landing_history,
    node_history,
    people_history,
    plan_history,
    review_history,
    run_history,
)
from fleet.core.history.replace import replace
from fleet.core.state import facts as f
from fleet.core.state.state import RunState


def evolve(state: RunState | None, fact: f.Fact) -> RunState:
    """The state after `fact`. The first fact is `RunStarted`; a journal with any other is broken."""
    if isinstance(fact, f.RunStarted):
        return run_history.start(fact)
    if state is None:
        raise ValueError(f"a run begins with run_started, not with {fact.kind}")
    after = _AFTER[type(fact)](state, fact)
    if fact.at <= after.last_at:  # a request may be recorded long after it was made
        return after
    return replace(after, last_at=fact.at)


After = Callable[[RunState, Any], RunState]
_MODULES: tuple[tuple[Any, After], ...] = (
    (f.RunFact, run_history.after),
    (f.PlanFact, plan_history.after),
    (f.AttemptFact, attempt_history.after),
    (f.LandingFact, landing_history.after),
    (f.PeopleFact, people_history.after),
    (f.NodeFact, node_history.after),
    (f.ReviewFact, review_history.after),
)
_AFTER: dict[type, After] = {kind: after for union, after in _MODULES for kind in get_args(union)}
"""By the class of a fact. mypy checks that each module handles all of its facts, a test that all classes are here."""
