"""What a run needs from a person. Every screen, the report and the metrics ask here."""

from typing import Literal

from fleet.core.policy.approval import awaits_approval, is_being_revised
from fleet.core.policy.budget import over_budget
from fleet.core.state.state import RunState

Needed = Literal["resume", "approve", "answer", "budget", "unpause"]
"""What a person has to do: resume it, approve work, answer a question, raise a budget, end a pause."""


def needed(state: RunState, now: float, *, alive: bool) -> tuple[Needed, ...]:
    """The most urgent first; empty if the run needs no one, or has ended."""
    if state.ended:
        return ()
    needs: list[tuple[Needed, bool]] = [
        ("resume", not alive),
        ("approve", awaits_approval(state) and not is_being_revised(state)),
        ("answer", bool(state.open_questions())),
        ("budget", over_budget(state, now) is not None),
        ("unpause", state.paused and not state.rests),
    ]
    return tuple(name for name, holds in needs if holds)
