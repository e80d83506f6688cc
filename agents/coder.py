"""A worker that calls a model: one conversation an attempt, at one desk, from the brief to a report."""

from dataclasses import dataclass, replace

from agents.allowance import Allowance
from agents.briefs import first_message, shared_blocks
from agents.conversation import Conversation, Guards, Setting
from agents.models.calls import Caller
from agents.prompting import render
from agents.settings import MindSettings, WorkerSettings
from agents.tools.registry import WORKER_TOOLS, Bounds
from agents.tools.tool import Tool
from agents.transcripts import Transcripts
from fleet.core.facts import Failure, Report
from fleet.ports import Desk, Meter, WorkerBrief

_UNKNOWN = 404  # the model; a refused key is nobody's choice


@dataclass(frozen=True, slots=True)
class Kind:
    """What makes a worker kind: its prompt and its tools."""

    prompt: str
    tools: tuple[str, ...]
    offline: bool = False
    """Its commands never reach the network, whatever the box allows."""


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
        return self.own.models[0] if self.own.models else self.settings.worker_model

    async def run(self, brief: WorkerBrief, desk: Desk, meter: Meter) -> Report | Failure:
        """Do the subtask at this desk."""
        settings, own = self.settings, self.own
        model = brief.model or self.model or settings.worker_model
        setting: Setting[Report] = Setting(
            model=model,
            max_tokens=settings.max_tokens,
            system=system_prompt(self.kind.prompt, own),
            tools=self._tools(desk),
            ending="report",
            guards=Guards(turns=own.turns, seconds=own.time_s),
            room=settings.room(model),
            shared=shared_blocks(brief),
        )
        allowance = Allowance(meter, own.tokens, own.dollars)
        with self.transcripts.open(brief.subtask.id, brief.attempt) as transcript:
            result = await Conversation(setting, self.caller, allowance, transcript).hold(first_message(brief))
        chosen = brief.subtask.model
        return _own_fault(result, chosen) if isinstance(result, Failure) and chosen else result

    def _tools(self, desk: Desk) -> tuple[Tool[Report], ...]:
        own, settings = self.own, self.settings
        extras = replace(own.extras, network=False) if self.kind.offline else own.extras
        bounds = Bounds(settings.command_s, settings.output_chars, extras=extras, secrets=own.secrets, hosts=own.hosts)
        names = dict.fromkeys((*(own.tools or self.kind.tools), "report"))
        return tuple(WORKER_TOOLS[name](desk, bounds) for name in names)


def system_prompt(name: str, own: WorkerSettings) -> str:
    """What a kind is told, and after it what this worker is."""
    told = render(name, reporting=render("reporting"), hosts=", ".join(own.hosts))
    return f"{told}\n# What you are told besides\n\n{own.prompt.strip()}\n" if own.prompt.strip() else told


def _own_fault(failure: Failure, model: str) -> Failure:
    """A model that the plan chose for this subtask and the service does not know is a fault of that choice."""
    if failure.kind != "configuration" or failure.status != _UNKNOWN:
        return failure
    summary = f"the model chosen for this subtask, {model!r}, can't be used: {failure.summary}"
    return failure.model_copy(update={"kind": "other", "summary": summary})
