"""The story of an incident: what failed, with its evidence; each remedy, who chose it and what came of it; the end.

Made of what is true of the run alone, so that the command line, the report and the screen tell the same story.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from fleet.core.facts import FailureKind, Strategy
from fleet.core.ids import Sha, SubtaskId
from fleet.core.incidents import Chosen, Incident
from fleet.core.state import Attempt, RunState

EVIDENCE = 1_500  # characters of what an attempt left as evidence: its end, which is where programs say what is wrong
PARTS = 100  # attempts at the parts of a split that are told

Outcome = Literal["failed", "landed", "done, nothing changed", "stopped", "under way"]


@dataclass(frozen=True, slots=True)
class Try:
    """An attempt in a story."""

    subtask: SubtaskId
    attempt: int
    strategy: Strategy
    worker: str
    model: str | None
    outcome: Outcome
    kind: FailureKind | None
    summary: str
    evidence: str
    commit: Sha | None
    """What landed."""
    dollars: float | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Step:
    """A remedy: who chose it, and the attempts that were made of it."""

    chosen: Chosen
    tries: tuple[Try, ...]
    left_out: int = 0
    """Attempts at parts that are not told."""


@dataclass(frozen=True, slots=True)
class Story:
    """From a failure to its end."""

    incident: Incident
    first: Try
    """The failure it began with."""
    steps: tuple[Step, ...]
    end: str
    """How it closed, or what it waits for."""


def story_of(state: RunState, incident: Incident, now: float) -> Story:
    """Everything there is to tell of an incident."""
    attempts = state.subtasks[incident.subtask].attempts
    first = incident.troubles[0].attempt
    return Story(
        incident=incident,
        first=_try(incident.subtask, attempts[first - 1], now),
        steps=tuple(_step(state, incident, chosen, now) for chosen in incident.remedies),
        end=_end(state, incident),
    )


def stories(state: RunState, now: float) -> Iterator[Story]:
    return (story_of(state, incident, now) for incident in state.incidents)


def _step(state: RunState, incident: Incident, chosen: Chosen, now: float) -> Step:
    if chosen.strategy == "split":
        tries = sorted(_of_parts(state, incident.subtask, now), key=lambda pair: pair[0])
        return Step(chosen, tuple(told for _, told in tries[:PARTS]), left_out=max(0, len(tries) - PARTS))
    attempts = state.subtasks[incident.subtask].attempts[chosen.after : chosen.after + 1]
    return Step(chosen, tuple(_try(incident.subtask, attempt, now) for attempt in attempts))


def _of_parts(state: RunState, id_: SubtaskId, now: float) -> Iterator[tuple[float, Try]]:
    """The attempts at what a subtask was split into, and at the parts of these."""
    for part in state.subtasks[id_].parts:
        for attempt in state.subtasks[part].attempts:
            yield attempt.started_at, _try(part, attempt, now)
        yield from _of_parts(state, part, now)


def _try(id_: SubtaskId, attempt: Attempt, now: float) -> Try:
    failure = attempt.failure
    return Try(
        subtask=id_,
        attempt=attempt.number,
        strategy=attempt.strategy,
        worker=attempt.worker,
        model=attempt.model,
        outcome=_outcome(attempt),
        kind=failure.kind if failure is not None else None,
        summary=failure.summary if failure is not None else "",
        evidence=excerpt(failure.evidence) if failure is not None else "",
        commit=attempt.landed if not attempt.unchanged else None,
        dollars=attempt.spend.dollars,
        seconds=max(0.0, (attempt.ended_at if attempt.ended_at is not None else now) - attempt.started_at),
    )


def _outcome(attempt: Attempt) -> Outcome:
    if attempt.failure is not None:
        return "failed"
    if attempt.landed is not None:
        return "done, nothing changed" if attempt.unchanged else "landed"
    return "under way" if attempt.ended_at is None else "stopped"


def excerpt(evidence: str) -> str:
    """The end of some evidence, from the beginning of a line where that is near."""
    text = evidence.strip()
    if len(text) <= EVIDENCE:
        return text
    tail = text[-EVIDENCE:]
    cut = tail.find("\n")
    return f"…\n{tail[cut + 1 :] if 0 <= cut < EVIDENCE // 2 else tail}"


def _end(state: RunState, incident: Incident) -> str:
    subtask = state.subtasks[incident.subtask]
    match incident.closing:
        case "landed" | "parts landed":
            return (
                "it landed" if incident.closing == "landed" else f"all of its parts landed: {', '.join(subtask.parts)}"
            )
        case "asked":
            return _asked(state, incident)
        case "helped":
            return "a human helped before anybody was asked"
        case "dropped":
            return f"dropped: {subtask.dropped}" if subtask.dropped is not None else "dropped"
        case "skipped":
            return "skipped, as the plan says of it"
        case "rolled back":
            return f"rolled back: {state.undoing}" if state.undoing is not None else "rolled back"
        case "ended":
            return f"the run ended: {state.ending}, {state.ending_why}" if state.ended else "the run ended before that"
        case None:
            return _open(state, incident)


def _asked(state: RunState, incident: Incident) -> str:
    question = state.questions.get(incident.question) if incident.question is not None else None
    if question is None:
        return "a human was asked"
    answer = "nobody has answered yet" if question.answer is None else f"{question.answered_by}: {question.answer}"
    landed = "; it has landed since" if state.subtasks[incident.subtask].landed is not None else ""
    return f"a human was asked ({question.id}: {question.text}), {answer}{landed}"


def _open(state: RunState, incident: Incident) -> str:
    """What an open incident waits for."""
    subtask = state.subtasks[incident.subtask]
    if subtask.parts:
        missing = [part for part in subtask.parts if state.subtasks[part].landed is None]
        return f"open: {len(missing)} of its {len(subtask.parts)} parts have not landed"
    if (current := subtask.current) is not None:
        return f"open: attempt {current.number} is under way"
    return "open: the planner decides" if subtask.remedy == "planner" else "open: it is tried again"


# ---- as data --------------------------------------------------------------------------------------------------------


def story_view(story: Story) -> dict[str, Any]:
    """What `--json` prints of a story. Its keys are public."""
    incident, closed = story.incident, story.incident.closed_at
    return {
        "number": incident.number,
        "subtask": incident.subtask,
        "class": incident.kind,
        "opened_at": incident.opened_at,
        "closed_at": incident.closed_at,
        "seconds": round(max(0.0, closed - incident.opened_at), 3) if closed is not None else None,
        "recovered": incident.recovered,
        "strategy": incident.strategy,
        "closing": incident.closing,
        "end": story.end,
        "question": incident.question,
        "dollars": _dollars([story.first, *(told for step in story.steps for told in step.tries)]),
        "failure": _try_view(story.first),
        "remedies": [_step_view(step) for step in story.steps],
        "troubles": [
            {"attempt": trouble.attempt, "class": trouble.kind, "summary": trouble.summary}
            for trouble in incident.troubles
        ],
    }


def _step_view(step: Step) -> dict[str, Any]:
    chosen = step.chosen
    return {
        "remedy": chosen.strategy,
        "by": chosen.by,
        "plan_version": chosen.version,
        "why": chosen.why,
        "at": chosen.at,
        "wait_s": round(max(0.0, chosen.not_before - chosen.at), 3),
        "attempts": [_try_view(told) for told in step.tries],
        "attempts_left_out": step.left_out,
        "dollars": _dollars(step.tries),
        "seconds": round(sum(told.seconds for told in step.tries), 3),
    }


def _try_view(told: Try) -> dict[str, Any]:
    return {
        "subtask": told.subtask,
        "attempt": told.attempt,
        "strategy": told.strategy,
        "worker": told.worker,
        "model": told.model,
        "outcome": told.outcome,
        "class": told.kind,
        "summary": told.summary,
        "evidence": told.evidence,
        "commit": told.commit,
        "dollars": told.dollars,
        "seconds": round(told.seconds, 3),
    }


def _dollars(tries: list[Try] | tuple[Try, ...]) -> float | None:
    """What they cost together; None where that of one is not known."""
    known = [told.dollars for told in tries if told.dollars is not None]
    return round(sum(known), 6) if len(known) == len(tries) else None
