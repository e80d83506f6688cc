"""A worker that calls a model: one conversation an attempt, at one desk, from the brief to a report."""

from dataclasses import dataclass
from typing import Any

from agents.conversation import Conversation, Guards, Setting
from agents.models.calls import Caller
from agents.prompting import render
from agents.settings import MindSettings, WorkerSettings
from agents.text import capped, fenced
from agents.tools.registry import WORKER_TOOLS, Bounds
from agents.transcripts import Transcripts
from fleet.core.facts import Failure, Report
from fleet.ports import Desk, Meter, WorkerBrief

_EVIDENCE = 6_000  # characters of evidence of one earlier failure
_NOTES = 20_000  # characters of the repository's own notes
_UNKNOWN = "HTTP 404"  # the model; a refused key is nobody's choice


@dataclass(frozen=True, slots=True)
class Kind:
    """What makes a worker kind: its prompt and its tools."""

    prompt: str
    tools: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ApiWorker:
    """Works with a model. Stateless: everything it knows is in the brief."""

    kind: Kind
    own: WorkerSettings
    settings: MindSettings
    caller: Caller
    transcripts: Transcripts

    @property
    def model(self) -> str | None:
        return self.own.model or self.settings.worker_model

    async def run(self, brief: WorkerBrief, desk: Desk, meter: Meter) -> Report | Failure:
        """Do the subtask at this desk."""
        settings = self.settings
        bounds = Bounds(command_s=settings.command_s, output_chars=settings.output_chars)
        setting: Setting[Report] = Setting(
            model=brief.model or self.own.model or settings.worker_model,
            max_tokens=settings.max_tokens,
            system=render(self.kind.prompt),
            tools=tuple(WORKER_TOOLS[name](desk, bounds) for name in self.kind.tools),
            ending="report",
            guards=Guards(turns=self.own.turns, seconds=settings.attempt_s),
        )
        with self.transcripts.open(brief.subtask.id, brief.attempt) as transcript:
            result = await Conversation(setting, self.caller, meter, transcript).hold(first_message(brief))
        chosen = brief.subtask.model
        return _own_fault(result, chosen) if isinstance(result, Failure) and chosen else result


def first_message(brief: WorkerBrief) -> list[str]:
    """The blocks of a worker's first message, in the order of the model protocol."""
    blocks = [
        fenced("subtask", brief.subtask.model_dump(mode="json")),
        fenced("attempt", _attempt(brief)),
    ]
    if brief.results:
        blocks.append(fenced("results", [_result(subtask, report) for subtask, report in brief.results]))
    if brief.notes.strip():
        blocks.append(fenced("notes", capped(brief.notes, _NOTES)))
    return blocks


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


def _own_fault(failure: Failure, model: str) -> Failure:
    """A model that the plan chose for this subtask and the service does not know is a fault of that choice."""
    if failure.kind != "configuration" or not failure.summary.startswith(_UNKNOWN):
        return failure
    summary = f"the model chosen for this subtask, {model!r}, can't be used: {failure.summary}"
    return failure.model_copy(update={"kind": "other", "summary": summary})
