"""The worker kinds there are, by name: a new one is a file and a line here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agents.coder import ApiWorker, Kind
from agents.models.calls import Caller
from agents.settings import MindSettings, WorkerSettings
from agents.transcripts import Transcripts
from fleet.core.nearest import did_you_mean
from fleet.ports import UsageError, Worker


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


def api_worker(kind: Kind) -> Callable[[WorkerSettings, Bench], Worker]:
    return lambda own, bench: ApiWorker(kind, own, bench.settings, bench.caller, bench.transcripts)


WORKERS: dict[str, WorkerKind] = {
    "coder": WorkerKind(
        purpose="Writes and changes code and tests, runs commands, and mends what is red. The one for most subtasks.",
        make=api_worker(Kind(prompt="coder", tools=("bash", "str_replace_based_edit_tool", "report"))),
    ),
}


def make_workers(bench: Bench) -> dict[str, Worker]:
    """A worker for each name in the settings. Raises `UsageError` for a kind there is none of."""
    return {name: _kind(name, own).make(own, bench) for name, own in bench.settings.workers.items()}


def describe(workers: Mapping[str, WorkerSettings]) -> dict[str, str]:
    """Each worker with what it is for."""
    return {name: own.description or _kind(name, own).purpose for name, own in workers.items()}


def _kind(name: str, own: WorkerSettings) -> WorkerKind:
    if own.kind not in WORKERS:
        there = did_you_mean(own.kind, WORKERS) or f"; there are {', '.join(sorted(WORKERS))}"
        raise UsageError(f"workers.{name}.kind: there is no worker kind {own.kind!r}{there}")
    return WORKERS[own.kind]
