"""A worker that calls a model: one conversation per attempt, from the brief to a report."""

from dataclasses import dataclass, replace

from agents.conversation.guards import AttemptBudget, Guards
from agents.conversation.loop import Conversation, ConversationSpec
from agents.conversation.settings import AgentSettings, WorkerSettings
from agents.models.calls import Calls
from agents.models.text import render
from agents.models.transcripts import Transcripts
from agents.tools.registry import WORKER_TOOLS
from agents.tools.tool import Offered, Tool, ToolOptions, ToolServers
from agents.workers.briefs import background, first_message, shared_blocks
from fleet.core.facts.facts import Failure, Report
from fleet.ports.agents import Meter, WorkerBrief, Workspace

_UNKNOWN_MODEL = 404  # as opposed to a rejected key, for which the plan is not responsible


@dataclass(frozen=True, slots=True)
class ApiWorker:
    """Works with a model. Stateless: all input is in the brief."""

    prompt: str
    tools: tuple[str, ...]
    offline: bool
    """Whether its commands have no network access, regardless of the sandbox settings."""
    settings: WorkerSettings
    common: AgentSettings
    caller: Calls
    transcripts: Transcripts
    servers: ToolServers | None = None
    """The MCP servers; None if the run has none."""

    @property
    def model(self) -> str:
        return next(iter(self.settings.choices), self.common.models.worker)

    async def run(self, brief: WorkerBrief, workspace: Workspace, meter: Meter) -> Report | Failure:
        """Work on the subtask in this workspace."""
        settings, model = self.settings, brief.model or self.model
        accepts = await self.caller.limits(model)
        offered = Offered()
        if self.servers is not None:
            offered = await self.servers.offered(settings.mcp, self.common.output_chars)
        spec: ConversationSpec[Report] = ConversationSpec(
            model=model,
            max_tokens=self.common.answer_tokens(accepts),
            system=system_prompt(self.prompt, settings),
            tools=(*self._tools(workspace, background(brief)), *offered.tools),
            ending="report",
            guards=Guards(turns=settings.turns, seconds=settings.time_s),
            limits=self.common.prompt_limits(model, accepts),
            shared=shared_blocks(brief),
            effort=brief.effort,
        )
        budget = AttemptBudget(meter, settings.tokens, settings.dollars)
        with self.transcripts.open(brief.subtask.id, brief.attempt) as transcript:
            for name, (count, problems) in offered.servers.items():
                transcript.write("server", name=name, offers=count, problems=problems)
            conversation = Conversation(spec, self.caller, budget, transcript, brief.operator)
            result = await conversation.hold(first_message(brief))
        return _blame_choice(result, brief.subtask.model) if isinstance(result, Failure) else result

    def _tools(self, workspace: Workspace, written: str) -> tuple[Tool[Report], ...]:
        settings, common = self.settings, self.common
        extras = replace(settings.extras, network=False) if self.offline else settings.extras
        options = ToolOptions(
            common.command_s, common.output_chars, extras, settings.secrets, settings.hosts, background=written
        )
        chosen = tuple(name for name in settings.tools or self.tools if name != "report")
        names = dict.fromkeys((*chosen, "background", "report"))
        return tuple(WORKER_TOOLS[name](workspace, options) for name in names)


def system_prompt(name: str, settings: WorkerSettings) -> str:
    """Return the prompt of the kind, followed by the worker's additional prompt."""
    prompt = render(name, reporting=render("reporting"), hosts=", ".join(settings.hosts))
    addition = settings.prompt.strip()
    return f"{prompt}\n# Additional instructions\n\n{addition}\n" if addition else prompt


def _blame_choice(failure: Failure, chosen: str | None) -> Failure:
    """Attribute an unknown model to the plan, instead of the configuration, if the plan chose it."""
    if chosen is None or failure.kind != "configuration" or failure.status != _UNKNOWN_MODEL:
        return failure
    summary = f"the model chosen for this subtask, {chosen!r}, can't be used: {failure.summary}"
    return failure.model_copy(update={"kind": "other", "summary": summary})
