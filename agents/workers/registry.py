"""The worker kinds there are, by name: a new one is a file and a line here."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields

from agents.claude_code import ClaudeCodeWorker
from agents.coder import ApiWorker, Kind
from agents.command import CommandWorker
from agents.commandline import line_problem, parameters_of
from agents.fetching import host_problem
from agents.models.calls import Caller
from agents.settings import MindSettings, WorkerSettings
from agents.tools.registry import WORKER_TOOLS
from agents.transcripts import Transcripts
from fleet.core.nearest import did_you_mean
from fleet.ports import UsageError, Worker

_ALL = frozenset({"kind", "description", "prompt", "time_s"})
_MODEL = frozenset({"models", "turns", "tokens", "dollars"})
_COMMANDS = frozenset({"extras", "secrets"})
_KEYS = {"extras": "read_only, path, network and environment", "secrets": "pass_environment"}
"""What some fields are called in the configuration."""


@dataclass(frozen=True, slots=True)
class Bench:
    """What a worker is made with."""

    settings: MindSettings
    caller: Caller
    transcripts: Transcripts


@dataclass(frozen=True, slots=True)
class WorkerKind:
    """A kind as the planner knows it, and how one is made."""

    purpose: str
    make: Callable[[WorkerSettings, Bench], Worker]
    takes: frozenset[str]
    """The settings that mean something to it, besides those that every kind takes."""
    problem: Callable[[WorkerSettings], str | None] = lambda _own: None
    """Why one with these settings can't work, if it can't."""


def api_worker(kind: Kind) -> Callable[[WorkerSettings, Bench], Worker]:
    return lambda own, bench: ApiWorker(kind, own, bench.settings, bench.caller, bench.transcripts)


WORKERS: dict[str, WorkerKind] = {
    "coder": WorkerKind(
        purpose="Writes and changes code and tests, runs commands, and mends what is red. The one for most subtasks.",
        make=api_worker(Kind(prompt="coder", tools=("bash", "str_replace_based_edit_tool", "report"))),
        takes=_MODEL | _COMMANDS | {"tools"},
    ),
    "writer": WorkerKind(
        purpose="Writes and edits files and can run nothing: documentation, texts. Costs less than a coder.",
        make=api_worker(Kind(prompt="writer", tools=("str_replace_based_edit_tool", "report"))),
        takes=_MODEL,
    ),
    "processor": WorkerKind(
        purpose="Works on files with commands, never with the network: converts, counts, extracts, generates data.",
        make=api_worker(Kind(prompt="processor", tools=("bash", "report"), offline=True)),
        takes=_MODEL | _COMMANDS,
    ),
    "retriever": WorkerKind(
        purpose="Fetches from the hosts it may ask ({hosts}) and writes what it finds into files. Runs no commands.",
        make=api_worker(Kind(prompt="retriever", tools=("fetch", "str_replace_based_edit_tool", "report"))),
        takes=_MODEL | {"hosts"},
        problem=lambda own: host_problem(own.hosts),
    ),
    "claude-code": WorkerKind(
        purpose="A session of Claude Code, an agent of its own: code that needs more looking around than a coder does.",
        make=lambda own, bench: ClaudeCodeWorker(own, bench.settings, bench.caller, bench.transcripts),
        takes=_MODEL | _COMMANDS | {"tools", "command"},
    ),
    "command": WorkerKind(
        purpose="Runs one fixed program on the subtask.",
        make=lambda own, bench: CommandWorker(own, bench.transcripts),
        takes=_COMMANDS | {"command", "models"},
        problem=lambda own: line_problem(own.command),
    ),
}


def make_workers(bench: Bench) -> dict[str, Worker]:
    """A worker for each name in the settings. Raises `UsageError` with all that is wrong with them."""
    wanted = bench.settings.workers
    problems = [problem for name, own in wanted.items() for problem in problems_of(name, own)]
    if problems:
        raise UsageError("\n".join(problems))
    return {name: WORKERS[own.kind].make(own, bench) for name, own in wanted.items()}


def describe(workers: Mapping[str, WorkerSettings]) -> dict[str, str]:
    """Each worker with what it is for, and what a plan has to give it."""
    return {name: _described(own) for name, own in workers.items()}


def _described(own: WorkerSettings) -> str:
    said = own.description or WORKERS[own.kind].purpose.replace("{hosts}", ", ".join(own.hosts))
    if parameters := parameters_of(own.command):
        said += f" Its subtasks give it these `parameters`: {', '.join(parameters)}."
    if len(own.models) > 1:
        said += (
            f" Begins with {own.models[0]}; after an attempt that failed it goes on with {', '.join(own.models[1:])}."
        )
    return said


def problems_of(name: str, own: WorkerSettings) -> Iterator[str]:
    """Why a worker with these settings can't be made, each reason with its key."""
    if own.kind not in WORKERS:
        there = did_you_mean(own.kind, WORKERS) or f"; there are {', '.join(sorted(WORKERS))}"
        yield f"workers.{name}.kind: there is no worker kind {own.kind!r}{there}"
        return
    takes = WORKERS[own.kind].takes | _ALL
    plain = WorkerSettings()
    for field in fields(WorkerSettings):
        if field.name not in takes and getattr(own, field.name) != getattr(plain, field.name):
            yield f"workers.{name}: {_KEYS.get(field.name, field.name)} means nothing to the kind {own.kind!r}"
    for tool in own.tools if own.kind == "coder" else ():
        if tool not in WORKER_TOOLS:
            yield f"workers.{name}.tools: there is no tool {tool!r}{did_you_mean(tool, WORKER_TOOLS)}"
    if problem := WORKERS[own.kind].problem(own):
        yield f"workers.{name}: {problem}"
