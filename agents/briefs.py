"""A brief as a worker gets it: the blocks of a first message, or one document for a program."""

from typing import Any

from agents.text import capped, fenced
from fleet.core.facts import Report
from fleet.ports import WorkerBrief

_EVIDENCE = 6_000  # characters of evidence of one earlier failure
_NOTES = 20_000  # characters of the repository's own notes


def first_message(brief: WorkerBrief) -> list[str]:
    """The blocks of a worker's first message, in the order of the model protocol."""
    return [fenced(name, value) for name, value in as_document(brief).items()]


def as_document(brief: WorkerBrief) -> dict[str, Any]:
    """All that a worker knows. What there is none of is left out."""
    said: dict[str, Any] = {"subtask": brief.subtask.model_dump(mode="json"), "attempt": _attempt(brief)}
    if brief.results:
        said["results"] = [_result(subtask, report) for subtask, report in brief.results]
    if brief.notes.strip():
        said["notes"] = capped(brief.notes, _NOTES)
    return said


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
