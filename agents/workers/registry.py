"""The worker kinds by name: a new one is a file and a row here. A kind's module is imported once it is used."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from agents.conversation.settings import AgentSettings, WorkerSettings
from agents.models.calls import Calls
from agents.models.transcripts import Transcripts
from agents.tools.registry import WORKER_TOOLS
from agents.tools.tool import ToolServers, host_problem
from agents.workers.command import ACP_EXTRA, has_acp, line_problem, parameters_of
from agents.workers.relay import OpenRelay
from fleet.core.base.ids import did_you_mean
from fleet.errors import UsageError
from fleet.ports.agents import Worker

_ALL = frozenset({"kind", "description", "prompt", "time_s", "labels"})
_MODEL = frozenset({"model", "models", "rungs", "first_rung", "turns", "tokens", "dollars"})
_OURS = _MODEL | {"mcp"}
"""Of conversations of ours, whose tools the manager runs."""
_COMMANDS = frozenset({"read_only", "path", "network", "environment", "pass_environment"})


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What all workers are made with."""

    settings: AgentSettings
    caller: Calls
    transcripts: Transcripts
    open_relay: OpenRelay
    servers: ToolServers | None = None
    """None: the run has none."""


Make = Callable[[WorkerSettings, WorkerContext], Worker]


@dataclass(frozen=True, slots=True)
class WorkerKind:
    """A kind as the planner knows it, and how a worker of it is made."""

    purpose: str
    make: Make
    takes: frozenset[str]
    """The settings that mean something to it, besides those that every kind takes."""
    problem: Callable[[WorkerSettings], str | None] = lambda _worker: None
    """Why a worker with these settings can't work, if it can't."""


def _api_worker(prompt: str, *tools: str, offline: bool = False) -> Make:
    def make(worker: WorkerSettings, context: WorkerContext) -> Worker:
        from agents.workers.api import ApiWorker  # noqa: PLC0415

        return ApiWorker(
            prompt, tools, offline, worker, context.settings, context.caller, context.transcripts, context.servers
        )

    return make


def _claude_code_worker(worker: WorkerSettings, context: WorkerContext) -> Worker:
    from agents.workers.claude_code import ClaudeCodeWorker  # noqa: PLC0415 - its relay imports a web server

    return ClaudeCodeWorker(worker, context.settings, context.open_relay, context.transcripts)


def _acp_worker(worker: WorkerSettings, context: WorkerContext) -> Worker:
    from agents.workers.acp import AcpWorker  # noqa: PLC0415 - its messages are an extra, and take 0.3 s to import

    return AcpWorker(worker, context.settings, context.open_relay, context.transcripts)


def _acp_problem(worker: WorkerSettings) -> str | None:
    if not has_acp():
        return f"the kind 'acp' needs a package: {ACP_EXTRA}"
    return line_problem(worker.words)


def _command_worker(worker: WorkerSettings, context: WorkerContext) -> Worker:
    from agents.workers.command import CommandWorker  # noqa: PLC0415

    return CommandWorker(worker, context.transcripts)


WORKERS: dict[str, WorkerKind] = {
    "coder": WorkerKind(
        purpose="Writes and changes code and tests, runs commands, and fixes failing checks. Suits most subtasks.",
        make=_api_worker("coder", "bash", "str_replace_based_edit_tool", "report"),
        takes=_OURS | _COMMANDS | {"tools"},
    ),
    "writer": WorkerKind(
        purpose="Writes and edits files but can't run anything: documentation, texts. Costs less than a coder.",
        make=_api_worker("writer", "str_replace_based_edit_tool", "report"),
        takes=_OURS,
    ),
    "processor": WorkerKind(
        purpose="Processes files with commands, without a network: converts, counts, extracts, generates data.",
        make=_api_worker("processor", "bash", "report", offline=True),
        takes=_OURS | _COMMANDS,
    ),
    "retriever": WorkerKind(
        purpose="Fetches from its allowed hosts ({hosts}) and writes what it finds to files. Runs no commands.",
        make=_api_worker("retriever", "fetch", "str_replace_based_edit_tool", "report"),
        takes=_OURS | {"hosts"},
        problem=lambda worker: host_problem(worker.hosts),
    ),
    "claude-code": WorkerKind(
        purpose="A session of Claude Code, an independent agent, for code that needs a lot of exploration.",
        make=_claude_code_worker,
        takes=_MODEL | _COMMANDS | {"tools", "command"},
    ),
    "acp": WorkerKind(
        purpose="A session of an independent agent, for code that needs a lot of exploration.",
        make=_acp_worker,
        takes=_MODEL | _COMMANDS | {"command"},
        problem=_acp_problem,
    ),
    "command": WorkerKind(
        purpose="Runs one fixed program on the subtask.",
        make=_command_worker,
        takes=_COMMANDS | {"command", "model", "models"},
        problem=lambda worker: line_problem(worker.words),
    ),
}


def make_workers(context: WorkerContext) -> dict[str, Worker]:
    """A worker for each name in the settings. Raises `UsageError` with everything that is wrong with them."""
    workers = context.settings.workers
    problems = [problem for name, worker in workers.items() for problem in problems_of(name, worker)]
    if problems:
        raise UsageError("\n".join(problems))
    return {name: WORKERS[worker.kind].make(worker, context) for name, worker in workers.items()}


def make_worker(name: str, context: WorkerContext) -> Worker:
    """One of the workers. Raises `UsageError` with everything that is wrong with its settings."""
    worker = context.settings.workers[name]
    if problems := list(problems_of(name, worker)):
        raise UsageError("\n".join(problems))
    return WORKERS[worker.kind].make(worker, context)


def describe(workers: Mapping[str, WorkerSettings]) -> dict[str, str]:
    """What each worker is for, and what a plan has to give it."""
    return {name: _description(worker) for name, worker in workers.items()}


def _description(worker: WorkerSettings) -> str:
    text = worker.description or WORKERS[worker.kind].purpose.replace("{hosts}", ", ".join(worker.hosts))
    if parameters := parameters_of(worker.words):
        text += f" Its subtasks must give it these `parameters`: {', '.join(parameters)}."
    if len(worker.rungs) > 1:
        text += f" Its rungs are {', '.join(worker.rungs)}: the fleet chooses one, and the next after a failed attempt."
    elif len(worker.choices) > 1:
        later = ", ".join(worker.choices[1:])
        text += f" Begins with {worker.choices[0]}; after a failed attempt it continues with {later}."
    return text


def problems_of(name: str, worker: WorkerSettings) -> Iterator[str]:
    """Why a worker with these settings can't be made, each reason with its key."""
    kind = WORKERS.get(worker.kind)
    if kind is None:
        hint = did_you_mean(worker.kind, WORKERS) or f"; the kinds are {', '.join(sorted(WORKERS))}"
        yield f"workers.{name}.kind: there is no worker kind {worker.kind!r}{hint}"
        return
    for key in sorted(worker.changed - kind.takes - _ALL):
        yield f"workers.{name}: the kind {worker.kind!r} does not use {key}; remove it"
    for tool in worker.tools if worker.kind == "coder" else ():
        if tool not in WORKER_TOOLS:
            yield f"workers.{name}.tools: there is no tool {tool!r}{did_you_mean(tool, WORKER_TOOLS)}"
    if problem := kind.problem(worker):
        yield f"workers.{name}: {problem}"
