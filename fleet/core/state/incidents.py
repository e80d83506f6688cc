"""Incidents: what failed, what was chosen about it, and how it ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fleet.core.base.ids import QuestionId, SubtaskId
from fleet.core.state.facts import FailureKind, Strategy

POLICY = "policy"
"""Who chose a remedy, if neither a planner nor a person did."""
Closing = Literal[
    "landed",
    "parts landed",
    "asked",  # a human was
    "helped",  # a human did, without being asked
    "dropped",
    "skipped",
    "rolled back",
    "ended",  # the run
]
STRATEGIES: tuple[Strategy, ...] = ("retry", "resolve", "alternative", "split")
"""The remedies for a failure that need no human."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """One failure within an incident."""

    subtask: SubtaskId
    attempt: int
    kind: FailureKind
    summary: str


@dataclass(frozen=True, slots=True)
class ChosenRemedy:
    """A remedy that was chosen within an incident, and by whom."""

    strategy: Strategy
    by: str
    at: float
    after: int
    """The number of the attempt whose failure it answers."""
    version: int | None = None
    """The version of the plan, if a planner chose."""
    why: str = ""
    """The guidance of the next attempt, or the reason for a split."""
    not_before: float = 0.0


@dataclass(frozen=True)
class Incident:
    """From a failure to its recovery, or to the point where a human had to help."""

    number: int
    subtask: SubtaskId
    kind: FailureKind
    opened_at: float
    troubles: tuple[Trouble, ...]
    remedies: tuple[ChosenRemedy, ...] = ()
    closed_at: float | None = None
    recovered: bool | None = None
    strategy: Strategy | None = None
    """What recovered it, or `human` if it was handed over."""
    closing: Closing | None = None
    question: QuestionId | None = None
    """The question to a human that closed it, if one did."""


Incidents = Sequence[Incident]


def strategies_of(incident: Incident) -> frozenset[Strategy]:
    """The strategies chosen about an incident without a human."""
    return frozenset(remedy.strategy for remedy in incident.remedies) & frozenset(STRATEGIES)


def recovered_by(incident: Incident) -> Strategy | None:
    return incident.strategy if incident.recovered else None
