"""A worker's brief as blocks of the first message, as background to read, or as files for a program.

Untrusted texts are data: the message only quotes the start of them, and a tool returns the full texts.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agents.models.text import capped, fenced, operator_text, well_formed
from fleet.core.facts.fact_parts import Instruction
from fleet.core.facts.facts import Report
from fleet.ports.agents import WorkerBrief

_EVIDENCE = 6_000  # characters of evidence of one earlier failure
_QUOTED = 400  # characters of an untrusted text in the message
_NOTES = 20_000  # characters of the repository's notes


@dataclass(frozen=True, slots=True)
class BriefFiles:
    """The files for a program, in a separate folder."""

    folder: Path
    subtask: Path
    prompt: Path
    background: Path
    """Untrusted texts about the subtask; missing if there are none."""


@contextmanager
def brief_files(brief: WorkerBrief, told: Sequence[Instruction], *, ending: str) -> Iterator[BriefFiles]:
    """Write the brief and the operator's instructions to files during the block. `ending` ends the prompt."""
    with TemporaryDirectory(prefix="fleet-") as name:
        folder = Path(name)
        files = BriefFiles(folder, folder / "subtask.json", folder / "prompt.md", folder / "background.json")
        blocks = first_message(brief)
        if written := background(brief):
            blocks.append(fenced("background", {"file": str(files.background)}))
            files.background.write_text(written + "\n", encoding="utf-8")
        prompt = "\n\n".join((*blocks, *map(operator_text, told), ending.strip()))
        document = {**as_document(brief), **({"operator": [asdict(each) for each in told]} if told else {})}
        files.subtask.write_text(json.dumps(document, ensure_ascii=True, indent=1) + "\n", encoding="utf-8")
        files.prompt.write_text(well_formed(prompt) + "\n", encoding="utf-8")
        yield files


def first_message(brief: WorkerBrief) -> list[str]:
    """Return the blocks of a worker's first message, starting with those that all workers share."""
    document = as_document(brief)
    attempt = document["attempt"]
    quoted = [{**failure, "evidence": _end(failure["evidence"])} for failure in attempt["failures"]]
    blocks: dict[str, Any] = {name: document[name] for name in ("layout", "subtask") if name in document}
    blocks["attempt"] = {**attempt, "failures": quoted}
    if brief.results:
        blocks["results"] = [{"subtask": id_, "summary": report.summary[:_QUOTED]} for id_, report in brief.results]
    if brief.notes.strip():
        blocks["notes"] = {"AGENTS.md": f"{len(brief.notes)} characters"}
    return [fenced(name, value) for name, value in blocks.items()]


def background(brief: WorkerBrief) -> str:
    """Return untrusted texts about the subtask as JSON, or an empty string."""
    document = as_document(brief)
    parts: dict[str, Any] = {name: document[name] for name in ("notes", "results") if name in document}
    if brief.failures:
        parts["failures"] = document["attempt"]["failures"]
    return json.dumps(parts, ensure_ascii=False, indent=1, default=str) if parts else ""


def as_document(brief: WorkerBrief) -> dict[str, Any]:
    """Return the full brief as a document, without empty parts."""
    document: dict[str, Any] = {"layout": brief.layout} if brief.layout else {}
    if brief.notes.strip():
        document["notes"] = capped(brief.notes, _NOTES)
    document |= {"subtask": brief.subtask.model_dump(mode="json"), "attempt": _attempt(brief)}
    if brief.results:
        document["results"] = [_result(subtask, report) for subtask, report in brief.results]
    return document


def shared_blocks(brief: WorkerBrief) -> int:
    """Return the number of leading blocks that all workers share in the prompt cache."""
    return int(bool(brief.layout))


def _end(text: str) -> str:
    """Return the end of a text, which usually contains the reason for a failure."""
    return text if len(text) <= _QUOTED else f"…{text[-_QUOTED:]}"


def _attempt(brief: WorkerBrief) -> dict[str, Any]:
    failures = [
        {"attempt": number, "class": each.kind, "summary": each.summary, "evidence": capped(each.evidence, _EVIDENCE)}
        for number, each in brief.failures
    ]
    return {"run": brief.run, "number": brief.attempt, "guidance": brief.guidance, "failures": failures}


def _result(subtask: str, report: Report) -> dict[str, Any]:
    result = {"subtask": subtask, "summary": report.summary, "result": report.result}
    return {**result, "recommendations": report.recommendations} if report.recommendations else result
