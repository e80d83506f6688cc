"""Incidents in short, for a list of all of them."""

from dataclasses import dataclass

from fleet.core.base.ids import SubtaskId
from fleet.core.facts.facts import FailureKind, Strategy
from fleet.core.state.state import RunState


@dataclass(frozen=True, slots=True)
class IncidentRow:
    """An incident in short. Its texts are untrusted."""

    number: int
    subtask: SubtaskId
    kind: FailureKind
    opened_at: float
    closed_at: float | None
    recovered: bool | None
    """Null while it is open."""
    strategy: Strategy | None
    """What recovered it, or `human` if it was handed over."""
    summaries: tuple[str, ...]
    """What happened, the first failure first."""


def incident_rows(state: RunState) -> list[IncidentRow]:
    """Open ones first, and then the latest."""
    incidents = sorted(state.incidents, key=lambda each: (each.closed_at is not None, -each.opened_at))
    return [
        IncidentRow(
            number=each.number,
            subtask=each.subtask,
            kind=each.kind,
            opened_at=each.opened_at,
            closed_at=each.closed_at,
            recovered=each.recovered,
            strategy=each.strategy,
            summaries=tuple(trouble.summary for trouble in each.troubles),
        )
        for each in incidents
    ]
