"""History: the state after each fact. Pure and total, and its meaning never changes.

Each module of `history/` handles the facts of one subject. Nothing here decides anything.
"""

from typing import assert_never

from fleet.core.history import attempt_history, landing_history, people_history, plan_history, run_history
from fleet.core.history.replace import replace
from fleet.core.state import facts as f
from fleet.core.state.state import RunState


def evolve(state: RunState | None, fact: f.Fact) -> RunState:
    """The state after `fact`. The first fact is `RunStarted`; a journal with any other is broken."""
    if isinstance(fact, f.RunStarted):
        return run_history.start(fact)
    if state is None:
        raise ValueError(f"a run begins with run_started, not with {fact.kind}")
    last_at = max(state.last_at, fact.at)  # a request may be recorded long after it was made
    return replace(_after(state, fact), last_at=last_at)


def _after(state: RunState, fact: f.Fact) -> RunState:
    if isinstance(fact, f.RunFact):
        return run_history.after(state, fact)
    if isinstance(fact, f.PlanFact):
        return plan_history.after(state, fact)
    if isinstance(fact, f.AttemptFact):
        return attempt_history.after(state, fact)
    if isinstance(fact, f.LandingFact):
        return landing_history.after(state, fact)
    if isinstance(fact, f.PeopleFact):
        return people_history.after(state, fact)
    assert_never(fact)
