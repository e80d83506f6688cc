"""Incidents as stories: the failure with its evidence, each remedy with its author and result, and the end.

Derived only from the state, so that the command line, the report and the terminal UI show the same story.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from fleet.core.base.ids import QuestionId, Sha, SubtaskId
from fleet.core.facts.facts import FailureKind, Strategy
from fleet.core.state.state import (
    STRATEGIES,
    ChosenRemedy,
    Closing,
    Incident,
    Incidents,
    RunState,
    recovered_by,
    strategies_of,
)
from fleet.core.state.subtasks import Attempt

EVIDENCE = 1_500  # characters at the end of an attempt's evidence, because programs usually report errors last
PARTS = 100  # attempts at the parts of a split, at most

IncidentRow = Incident
"""A summary of an incident. Its texts are untrusted."""
Outcome = Literal["failed", "landed", "done, nothing changed", "stopped", "running"]


@dataclass(frozen=True, slots=True)
class RateCounts:
    """Closed and recovered incidents."""

    closed: int
    """Number of closed incidents."""
    recovered: int
    """Incidents recovered without a human."""
    unrecovered: int
    """Number of other closed incidents."""
    rate: float | None
    """`recovered` divided by `closed`. Null if none closed."""


@dataclass(frozen=True, slots=True)
class ClassCounts(RateCounts):
    """The incidents of one class, by their first failure."""

    opened: int
    """Number of incidents opened, including those that closed."""


@dataclass(frozen=True, slots=True)
class IncidentCounts(RateCounts):
    """The counts of all incidents of a run."""

    opened: int
    """Number of incidents opened, including those that closed."""
    open: int
    """Number of incidents that are still open."""
    by_class: Mapping[FailureKind, ClassCounts]
    """By the class of their first failure."""
    by_strategy: Mapping[Strategy, RateCounts]
    """By chosen strategy."""


@dataclass(frozen=True, slots=True)
class IncidentAttempt:
    """An attempt within an incident."""

    subtask: SubtaskId
    """Subtask of the attempt."""
    attempt: int
    """The number of the attempt, from 1."""
    strategy: Strategy
    """Reason for the attempt."""
    worker: str
    """Worker kind that ran the attempt."""
    model: str | None
    """Model that ran the attempt. Null: the worker's default."""
    outcome: Outcome
    """`failed`, `landed`, `done, nothing changed`, `stopped` or `running`."""
    class_: FailureKind | None
    """The class of its failure. Null if it did not fail."""
    summary: str
    """A summary of its failure."""
    evidence: str
    """End of a check's output, the worker's report, or paths."""
    commit: Sha | None
    """The landed commit."""
    dollars: float | None
    """Cost in USD. Null if the price of a call is unknown."""
    seconds: float
    """Duration of the attempt."""


@dataclass(frozen=True, slots=True)
class RemedyView:
    """A remedy, with its author and the resulting attempts."""

    remedy: Strategy
    """Strategy that was chosen."""
    by: str
    """`policy`, `planner` or a person."""
    plan_version: int | None
    """The version of the plan, if a planner chose the remedy."""
    why: str
    """Reason for the choice."""
    at: float
    """When it was chosen, in seconds since 1970."""
    wait_s: float
    """Backoff before the next attempt, in seconds."""
    attempts: tuple[IncidentAttempt, ...]
    """The resulting attempts."""
    attempts_left_out: int
    """Number of further attempts at parts of a split."""
    dollars: float | None
    """Cost in USD. Null if the price of an attempt is unknown."""
    seconds: float
    """Total duration of the attempts."""


@dataclass(frozen=True, slots=True)
class TroubleView:
    """One failure of an incident."""

    attempt: int
    """The number of the attempt, from 1."""
    class_: FailureKind
    """The class of the failure."""
    summary: str
    """Failure in one sentence."""


@dataclass(frozen=True, slots=True)
class IncidentView:
    """An incident from its first failure to its end."""

    number: int
    """The number in the run, from 1."""
    subtask: SubtaskId
    """Subtask that the incident started with."""
    class_: FailureKind
    """The class of the first failure."""
    opened_at: float
    """In seconds since 1970."""
    closed_at: float | None
    """Null while it is open."""
    seconds: float | None
    """From the first failure to the end. Null while it is open."""
    recovered: bool | None
    """Whether it recovered without a human. Null while it is open."""
    strategy: Strategy | None
    """The successful strategy, or `human`."""
    closing: Closing | None
    """The kind of its end. Null while it is open."""
    end: str
    """The end, or its current state, as a sentence."""
    question: QuestionId | None
    """The question to a human that closed it."""
    dollars: float | None
    """Cost of all its attempts in USD. Null if a price is unknown."""
    failure: IncidentAttempt
    """The first failed attempt."""
    remedies: tuple[RemedyView, ...]
    """The remedies, in order."""
    troubles: tuple[TroubleView, ...]
    """All its failures."""


def incident_views(state: RunState, now: float) -> tuple[IncidentView, ...]:
    return tuple(incident_view(state, incident, now) for incident in state.incidents)


def incident_view(state: RunState, incident: Incident, now: float) -> IncidentView:
    attempts = state.subtasks[incident.subtask].attempts
    failure = _attempt(incident.subtask, attempts[incident.troubles[0].attempt - 1], now)
    remedies = tuple(_remedy(state, incident, chosen, now) for chosen in incident.remedies)
    closed = incident.closed_at
    return IncidentView(
        number=incident.number,
        subtask=incident.subtask,
        class_=incident.kind,
        opened_at=incident.opened_at,
        closed_at=closed,
        seconds=round(max(0.0, closed - incident.opened_at), 3) if closed is not None else None,
        recovered=incident.recovered,
        strategy=incident.strategy,
        closing=incident.closing,
        end=_end(state, incident),
        question=incident.question,
        dollars=_dollars([failure, *(attempt for remedy in remedies for attempt in remedy.attempts)]),
        failure=failure,
        remedies=remedies,
        troubles=tuple(TroubleView(trouble.attempt, trouble.kind, trouble.summary) for trouble in incident.troubles),
    )


def tried_strategies(incident: IncidentRow) -> dict[Strategy, bool]:
    """The chosen strategies, with their success."""
    return {name: recovered_by(incident) == name for name in sorted(strategies_of(incident))}


def summaries_of(incident: IncidentRow) -> list[str]:
    """The summaries of its failures, in order."""
    return [trouble.summary for trouble in incident.troubles]


def rate_of(incidents: Iterable[Incident]) -> RateCounts:
    return RateCounts(*_rate(_recoveries(incidents)))


def incident_counts(incidents: Incidents) -> IncidentCounts:
    """Count the incidents of a run."""
    by_class: dict[FailureKind, list[Incident]] = {}
    for incident in incidents:
        by_class.setdefault(incident.kind, []).append(incident)
    closed = [incident for incident in incidents if incident.closed_at is not None]
    by_strategy = {
        name: RateCounts(*_rate([recovered_by(one) == name for one in closed if name in strategies_of(one)]))
        for name in STRATEGIES
    }
    return IncidentCounts(
        *_rate(_recoveries(closed)),
        opened=len(incidents),
        open=len(incidents) - len(closed),
        by_class={
            kind: ClassCounts(*_rate(_recoveries(members)), opened=len(members)) for kind, members in by_class.items()
        },
        by_strategy={name: counts for name, counts in by_strategy.items() if counts.closed},
    )


def _recoveries(incidents: Iterable[Incident]) -> list[bool]:
    """For each closed incident, whether it recovered."""
    return [bool(incident.recovered) for incident in incidents if incident.closed_at is not None]


def _rate(recoveries: Sequence[bool]) -> tuple[int, int, int, float | None]:
    """The fields of `RateCounts`."""
    closed, recovered = len(recoveries), sum(recoveries)
    return closed, recovered, closed - recovered, round(recovered / closed, 4) if closed else None


def _remedy(state: RunState, incident: Incident, chosen: ChosenRemedy, now: float) -> RemedyView:
    if chosen.strategy == "split":
        attempts = [one for _, one in sorted(_at_parts(state, incident.subtask, now), key=lambda pair: pair[0])]
    else:
        following = state.subtasks[incident.subtask].attempts[chosen.after : chosen.after + 1]
        attempts = [_attempt(incident.subtask, attempt, now) for attempt in following]
    shown = tuple(attempts[:PARTS])
    return RemedyView(
        remedy=chosen.strategy,
        by=chosen.by,
        plan_version=chosen.version,
        why=chosen.why,
        at=chosen.at,
        wait_s=round(max(0.0, chosen.not_before - chosen.at), 3),
        attempts=shown,
        attempts_left_out=len(attempts) - len(shown),
        dollars=_dollars(shown),
        seconds=round(sum(attempt.seconds for attempt in shown), 3),
    )


def _at_parts(state: RunState, id_: SubtaskId, now: float) -> Iterator[tuple[float, IncidentAttempt]]:
    """The attempts at the parts of a split subtask, recursively, with their start times."""
    for part in state.subtasks[id_].parts:
        for attempt in state.subtasks[part].attempts:
            yield attempt.started_at, _attempt(part, attempt, now)
        yield from _at_parts(state, part, now)


def _attempt(id_: SubtaskId, attempt: Attempt, now: float) -> IncidentAttempt:
    failure = attempt.failure
    ended = attempt.ended_at if attempt.ended_at is not None else now
    return IncidentAttempt(
        subtask=id_,
        attempt=attempt.number,
        strategy=attempt.strategy,
        worker=attempt.worker,
        model=attempt.model,
        outcome=_outcome(attempt),
        class_=failure.kind if failure is not None else None,
        summary=failure.summary if failure is not None else "",
        evidence=excerpt(failure.evidence) if failure is not None else "",
        commit=attempt.landed if not attempt.unchanged else None,
        dollars=attempt.spend.dollars,
        seconds=round(max(0.0, ended - attempt.started_at), 3),
    )


def _outcome(attempt: Attempt) -> Outcome:
    if attempt.failure is not None:
        return "failed"
    if attempt.landed is not None:
        return "done, nothing changed" if attempt.unchanged else "landed"
    return "running" if attempt.ended_at is None else "stopped"


def excerpt(evidence: str) -> str:
    """The end of evidence, cut at the start of a line if possible."""
    text = evidence.strip()
    if len(text) <= EVIDENCE:
        return text
    tail = text[-EVIDENCE:]
    cut = tail.find("\n")
    return f"…\n{tail[cut + 1 :] if 0 <= cut < EVIDENCE // 2 else tail}"


def _dollars(attempts: Iterable[IncidentAttempt]) -> float | None:
    """The total cost. None if one is unknown."""
    total = 0.0
    for attempt in attempts:
        if attempt.dollars is None:
            return None
        total += attempt.dollars
    return round(total, 6)


def _end(state: RunState, incident: Incident) -> str:
    subtask = state.subtasks[incident.subtask]
    match incident.closing:
        case "landed":
            return "it landed"
        case "parts landed":
            return f"all of its parts landed: {', '.join(subtask.parts)}"
        case "asked":
            return _asked(state, incident)
        case "helped":
            return "a human helped before fleet asked a question"
        case "dropped":
            return f"dropped: {subtask.dropped}" if subtask.dropped is not None else "dropped"
        case "skipped":
            return 'skipped (failure_action = "skip")'
        case "rolled back":
            return f"rolled back: {state.undoing}" if state.undoing is not None else "rolled back"
        case "ended":
            return f"the run ended: {state.ending}, {state.ending_why}" if state.ended else "the run ended first"
        case None:
            return _open(state, incident)


def _asked(state: RunState, incident: Incident) -> str:
    question = state.questions.get(incident.question) if incident.question is not None else None
    if question is None:
        return "fleet asked a human"
    answer = "no answer yet" if question.answer is None else f"answer from {question.answered_by}: {question.answer}"
    landed = " (landed since)" if state.subtasks[incident.subtask].landed is not None else ""
    return f"fleet asked a human ({question.id}: {question.text}), {answer}{landed}"


def _open(state: RunState, incident: Incident) -> str:
    """Describe the state of an open incident."""
    subtask = state.subtasks[incident.subtask]
    if subtask.parts:
        missing = [part for part in subtask.parts if state.subtasks[part].landed is None]
        return f"open: {len(missing)} of its {len(subtask.parts)} parts have not landed"
    if (current := subtask.current) is not None:
        return f"open: attempt {current.number} is running"
    return "open: waiting for the planner" if subtask.remedy == "planner" else "open: waiting for a retry"
