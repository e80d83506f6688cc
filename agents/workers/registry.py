"""The registry of worker kinds. A new kind needs a module and a row here. Modules are imported on first use."""

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
"""Settings of API workers, whose tools the manager runs."""
_COMMANDS = frozenset({"read_only", "path", "network", "environment", "pass_environment"})


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """The shared dependencies of all workers."""

    settings: AgentSettings
    caller: Calls
    transcripts: Transcripts
    open_relay: OpenRelay
    servers: ToolServers | None = None
    """The MCP servers; None if the run has none."""


Make = Callable[[WorkerSettings, WorkerContext], Worker]


@dataclass(frozen=True, slots=True)
class WorkerKind:
    """A worker kind: its description for the planner, and its factory."""

    purpose: str
    make: Make
    takes: frozenset[str]
    """The supported settings, in addition to those of all kinds."""
    problem: Callable[[WorkerSettings], str | None] = lambda _worker: None
    """Returns why the settings of a worker are invalid, or None."""


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
        return f"the kind 'acp' requires a package that is not installed: run `{ACP_EXTRA}`"
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
        purpose="Fetches from its allowed hosts ({hosts}) and writes the results to files. Can't run commands.",
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
    """Create a worker for each name in the settings. Raises `UsageError` that lists every mistake."""
    workers = context.settings.workers
    problems = [problem for name, worker in workers.items() for problem in problems_of(name, worker)]
    if problems:
        raise UsageError("\n".join(problems))
    return {name: WORKERS[worker.kind].make(worker, context) for name, worker in workers.items()}


def make_worker(name: str, context: WorkerContext) -> Worker:
    """Create a worker. Raises `UsageError` that lists every mistake in its settings."""
    worker = context.settings.workers[name]
    if problems := list(problems_of(name, worker)):
        raise UsageError("\n".join(problems))
    return WORKERS[worker.kind].make(worker, context)


def describe(workers: Mapping[str, WorkerSettings]) -> dict[str, str]:
    """Describe the purpose of each worker, and its required fields in a plan."""
    return {name: _description(worker) for name, worker in workers.items()}


def _description(worker: WorkerSettings) -> str:
    text = worker.description or WORKERS[worker.kind].purpose.replace("{hosts}", ", ".join(worker.hosts))
    if parameters := parameters_of(worker.words):
        text += f" Its subtasks must set these `parameters`: {', '.join(parameters)}."
    if len(worker.rungs) > 1:
        text += f" Its rungs are {', '.join(worker.rungs)}. fleet chooses one, and the next after a failure."
    elif len(worker.choices) > 1:
        later = ", ".join(worker.choices[1:])
        text += f" Starts with {worker.choices[0]}. After a failed attempt it continues with {later}."
    return text


def problems_of(name: str, worker: WorkerSettings) -> Iterator[str]:
    """Yield the mistakes in a worker's settings, each with its key."""
    kind = WORKERS.get(worker.kind)
    if kind is None:
        hint = did_you_mean(worker.kind, WORKERS) or f"; available kinds: {', '.join(sorted(WORKERS))}"
        yield f"workers.{name}.kind: unknown worker kind {worker.kind!r}{hint}"
        return
    for key in sorted(worker.changed - kind.takes - _ALL):
        yield f"workers.{name}: the kind {worker.kind!r} does not use {key}; remove it"
    for tool in worker.tools if worker.kind == "coder" else ():
        if tool not in WORKER_TOOLS:
            yield f"workers.{name}.tools: unknown tool {tool!r}{did_you_mean(tool, WORKER_TOOLS)}"
    if problem := kind.problem(worker):
        yield f"workers.{name}: {problem}"
