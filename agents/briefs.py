"""A brief as a worker gets it: the blocks of a first message, or one document for a program."""

from typing import Any

from agents.text import capped, fenced
from fleet.core.facts import Report
from fleet.ports import WorkerBrief

_EVIDENCE = 6_000  # characters of evidence of one earlier failure
_NOTES = 20_000  # characters of the repository's own notes


def first_message(brief: WorkerBrief) -> list[str]:
    """The blocks of a worker's first message, what all workers share before what is this one's."""
    return [fenced(name, value) for name, value in as_document(brief).items()]


def as_document(brief: WorkerBrief) -> dict[str, Any]:
    """All that a worker knows, first what all workers are told. What there is none of is left out."""
    said: dict[str, Any] = {"layout": brief.layout} if brief.layout else {}
    if brief.notes.strip():
        said["notes"] = capped(brief.notes, _NOTES)
    said |= {"subtask": brief.subtask.model_dump(mode="json"), "attempt": _attempt(brief)}
    if brief.results:
        said["results"] = [_result(subtask, report) for subtask, report in brief.results]
    return said


def shared_blocks(brief: WorkerBrief) -> int:
    """How many blocks at the front are the same for all workers, so that they share them in the prompt cache."""
    return bool(brief.layout) + bool(brief.notes.strip())


def _attempt(brief: WorkerBrief) -> dict[str, Any]:
    failures = [
        {
            "attempt": number,
            "class": failure.kind,
            "summary": failure.summary,
            "evidence": capped(failure.evidence, _EVIDENCE),
        }
        for number, failure in brief.failures
    ]
    return {"run": brief.run, "number": brief.attempt, "guidance": brief.guidance, "failures": failures}


def _result(subtask: str, report: Report) -> dict[str, Any]:
    said = {"subtask": subtask, "summary": report.summary, "result": report.result}
    return {**said, "recommendations": report.recommendations} if report.recommendations else said
