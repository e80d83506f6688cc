"""Incidents: what went wrong, what was chosen about it, and how it ended. A part of history, as `queue.py` is.

Everything here works on the run's incidents alone, so that what an incident is can be read in one place.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

from fleet.core.facts import FailureKind, Strategy
from fleet.core.ids import QuestionId, SubtaskId

POLICY = "policy"
"""Who chose, where no planner and no person did."""
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


@dataclass(frozen=True, slots=True)
class Trouble:
    """One failure within an incident."""

    subtask: SubtaskId
    attempt: int
    kind: FailureKind
    summary: str


@dataclass(frozen=True, slots=True)
class Chosen:
    """A remedy that was chosen within an incident, and by whom."""

    strategy: Strategy
    by: str
    at: float
    after: int
    """The attempt that it is the answer to."""
    version: int | None = None
    """Of the plan, where a planner chose."""
    why: str = ""
    """What the next attempt is told, or why there are several now."""
    not_before: float = 0.0


@dataclass(frozen=True, slots=True)
class Incident:
    """From a failure to its recovery, or to the point where a human had to help."""

    number: int
    subtask: SubtaskId
    kind: FailureKind
    opened_at: float
    troubles: tuple[Trouble, ...]
    remedies: tuple[Chosen, ...] = ()
    closed_at: float | None = None
    recovered: bool | None = None
    strategy: Strategy | None = None
    """What recovered it, or `human` where it was handed over."""
    closing: Closing | None = None
    question: QuestionId | None = None
    """What a human was asked, where that closed it."""


Incidents = tuple[Incident, ...]


def failed(incidents: Incidents, trouble: Trouble, at: float) -> Incidents:
    """One more failure: of the incident that is open, or of a new one."""
    for index, incident in enumerate(incidents):
        if incident.closed_at is None and incident.subtask == trouble.subtask:
            longer = replace(incident, troubles=(*incident.troubles, trouble))
            return (*incidents[:index], longer, *incidents[index + 1 :])
    number = len(incidents) + 1
    new = Incident(number=number, subtask=trouble.subtask, kind=trouble.kind, opened_at=at, troubles=(trouble,))
    return (*incidents, new)


def remedied(incidents: Incidents, subtask: SubtaskId, chosen: Chosen) -> Incidents:
    """Something was chosen about a subtask, if it is in an incident."""
    return tuple(
        replace(incident, remedies=(*incident.remedies, chosen))
        if incident.closed_at is None and incident.subtask == subtask
        else incident
        for incident in incidents
    )


def recovered(incidents: Incidents, subtask: SubtaskId, strategy: Strategy, at: float, *, parts: bool) -> Incidents:
    """What a subtask was for has landed: by itself, or as its parts. What a human helped with is no recovery."""
    if strategy == "human":
        return given_up(incidents, subtask, "helped", at)
    closing: Closing = "parts landed" if parts else "landed"
    return tuple(
        replace(one, closed_at=at, recovered=True, strategy=strategy, closing=closing)
        if _is_open(one, subtask)
        else one
        for one in incidents
    )


def given_up(
    incidents: Incidents,
    subtask: SubtaskId | None,
    closing: Closing,
    at: float,
    *,
    question: QuestionId | None = None,
) -> Incidents:
    """It ends without a recovery; all that are open, where the subtask is None."""
    strategy: Strategy | None = "human" if closing in {"asked", "helped"} else None
    return tuple(
        replace(one, closed_at=at, recovered=False, strategy=strategy, closing=closing, question=question)
        if _is_open(one, subtask)
        else one
        for one in incidents
    )


def helped(incidents: Incidents, subtasks: Collection[SubtaskId]) -> bool:
    """Whether a human had to do with any of these."""
    return any(one.subtask in subtasks and one.closing in {"asked", "helped"} for one in incidents)


def _is_open(incident: Incident, subtask: SubtaskId | None) -> bool:
    return incident.closed_at is None and subtask in {None, incident.subtask}


# ---- rates ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rate:
    """Never a share without what it is a share of."""

    recovered: int
    closed: int

    @property
    def share(self) -> float | None:
        return self.recovered / self.closed if self.closed else None


@dataclass(frozen=True, slots=True)
class Rates:
    """What became of incidents: in all, by the class of their first failure, and by what was chosen about them."""

    opened: int
    total: Rate
    by_class: dict[FailureKind, tuple[int, Rate]]
    """How many opened, and what became of those that closed."""
    by_strategy: dict[Strategy, Rate]
    """How many it recovered, of the closed ones for which it was chosen."""


STRATEGIES: tuple[Strategy, ...] = ("retry", "resolve", "alternative", "split")
"""What a fleet does about a failure by itself."""


def strategies_of(incident: Incident) -> frozenset[Strategy]:
    """What was chosen about it, without a human."""
    return frozenset(chosen.strategy for chosen in incident.remedies) & frozenset(STRATEGIES)


def recovered_by(incident: Incident) -> Strategy | None:
    return incident.strategy if incident.recovered else None


def rate_of(incidents: Incidents) -> Rate:
    closed = [incident for incident in incidents if incident.closed_at is not None]
    return Rate(sum(bool(incident.recovered) for incident in closed), len(closed))


def rates_of(incidents: Incidents) -> Rates:
    kinds = dict.fromkeys(incident.kind for incident in incidents)
    by_class = {kind: tuple(one for one in incidents if one.kind == kind) for kind in kinds}
    closed = [incident for incident in incidents if incident.closed_at is not None]
    by_strategy = {
        name: Rate(sum(recovered_by(one) == name for one in closed), sum(name in strategies_of(one) for one in closed))
        for name in STRATEGIES
    }
    return Rates(
        opened=len(incidents),
        total=rate_of(incidents),
        by_class={kind: (len(found), rate_of(found)) for kind, found in by_class.items()},
        by_strategy={name: rate for name, rate in by_strategy.items() if rate.closed},
    )
