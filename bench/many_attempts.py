"""The manager of a thousand concurrent attempts on ten nodes: event loop delay, and cost per landed subtask.

    python -m bench.many_attempts NAME FOLDER    one run, of a plan and a configuration that are in the folder

`python -m bench nodes` starts this command. Each run has a separate process with all parts of `fleet run` except its
screen. The nodes are simulated (`bench/simulated_node.py`), in separate processes, with the real transport and
protocol. Packs are received, deciding checks run, and commits land as usual. *Local* is the same plan, run by programs
on this machine. With *calls*, each attempt also calls a model that responds after 4 s.
"""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import quantiles
from threading import Event, Thread
from typing import Self

import anyio
from anyio import CancelScope, create_task_group, to_thread

from bench.conversations import THINK_S, canned_server
from bench.hundred import NO_SERVICE
from bench.side_by_side import SMALL, Extent, Project, generated_project, git, plain_environment
from fleet.app.fleet import Fleet, Order
from fleet.app.input_files import load_plan
from fleet.config.load import load_config
from fleet.core.base.ids import RunId, result_branch
from fleet.core.facts import facts as f
from fleet.runs.journal import Journal
from scripts.frame import Figure, command_line, exit_with, machine, progress, say

NODES, AT_ONCE, HERE_AT_ONCE = 10, 1_000, 100
SUBTASKS, FEWER, TURNS = 2_000, 1_000, 4
FILES, IN_A_FOLDER = 100, 100
WORK_S = 40.0
"""Duration of an attempt on a simulated node, without its calls."""
TICK_S = 0.005
LATE_MS, RATIO = 25.0, 1.3
WORKERS = """\
[workers.program]
kind = "command"
description = "Writes its name into a file."
command = "sh -c 'mkdir -p \\"${{1%/*}}\\"; echo done >\\"$1\\"' sh {{parameters.file}}"

[workers.coder]
kind = "coder"
"""
CONFIGURATION = """\
[state]
dir = "{state}"

[run]
workers = {workers}

[box]
commands = {here}

[models]
base_url = "{service}"

"""
NODE = """
[nodes.n{number}]
command = {command}
workers = {slots}
checks = {slots}
"""


@dataclass(frozen=True)
class Trial:
    """A run, as it is configured."""

    name: str
    nodes: int = NODES
    workers: int = AT_ONCE
    subtasks: int = FEWER
    turns: int = 0
    """Number of model calls per attempt."""

    def configuration(self, state: Path, service: str) -> str:
        node = f"{sys.executable} -B -m bench.simulated_node {state} {WORK_S} {self.turns}"
        slots = self.workers // max(1, self.nodes)
        tables = [NODE.format(number=number, command=json.dumps(node), slots=slots) for number in range(self.nodes)]
        start = CONFIGURATION.format(state=state, workers=self.workers, here=HERE_AT_ONCE, service=service)
        return start + WORKERS.format() + "".join(tables)

    @property
    def plan(self) -> str:
        subtasks = []
        for number in range(self.subtasks):
            name = f"s{number:05}"
            file = f"done/{number // IN_A_FOLDER:03}/{name}"
            subtasks.append(
                {
                    "id": name,
                    "title": f"Write {name}",
                    "goal": f"Write {file}.",
                    "acceptance": [{"criterion": "it is there", "run": f"test -f {file}"}],
                    "worker": "coder" if self.turns else "program",
                    "parameters": {"file": file},
                }
            )
        return json.dumps({"goal": f"{self.subtasks} files", "subtasks": subtasks})


@dataclass
class Idle:
    """Wake-up delay of an idle thread, which this machine adds to every delay."""

    late_ms: list[float] = field(default_factory=list)
    _ended: Event = field(default_factory=Event)

    def __enter__(self) -> Self:
        self._thread = Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        due = time.perf_counter() + TICK_S
        while not self._ended.wait(TICK_S):
            self.late_ms.append((time.perf_counter() - due) * 1e3)
            due = time.perf_counter() + TICK_S


@dataclass(frozen=True)
class Measured:
    """One run."""

    late_ms: float
    """Delay of the event loop, 99th percentile."""
    busy_ms: float
    """Delay of the event loop in processor time of its thread, as on an otherwise idle machine."""
    own_ms: float
    """Processor time of the manager's process."""
    seconds: float
    landed: int
    at_once: int
    """Attempts that worked, at most."""
    idle_ms: float = 0.0
    """Delay of an idle process, 99th percentile."""

    @property
    def each_ms(self) -> float:
        return self.own_ms / self.landed


@dataclass
class LoopDelay:
    """Delay of a sleeping task beyond the requested time, in wall time and in processor time of its thread."""

    late_ms: list[float] = field(default_factory=list)
    busy_ms: list[float] = field(default_factory=list)

    async def watch(self) -> None:
        while True:
            due, used = time.perf_counter() + TICK_S, time.thread_time()
            await anyio.sleep(TICK_S)
            self.late_ms.append((time.perf_counter() - due) * 1e3)
            self.busy_ms.append(max(0.0, time.thread_time() - used - TICK_S) * 1e3)


async def many_attempts_figures(extent: Extent) -> list[Figure]:
    return await to_thread.run_sync(_figures, extent)


def _figures(extent: Extent) -> list[Figure]:
    subtasks = FEWER if extent.wide <= SMALL.wide else SUBTASKS
    with generated_project(FILES, extent.folder, commits=1) as project:
        progress(f"{AT_ONCE:,} attempts at once on {NODES} simulated nodes")
        there = measured(project, Trial("there", subtasks=subtasks))
        progress("the same, with calls")
        calls = measured(project, Trial("calls", subtasks=subtasks, turns=TURNS))
        progress("the same on this machine")
        here = measured(project, Trial("here", nodes=0, workers=HERE_AT_ONCE, subtasks=subtasks))
    ratio, each = there.each_ms / here.each_ms, f"{there.each_ms:.1f} of {here.each_ms:.1f} ms"
    return [
        _late("attempts on nodes", there),
        _late(f"with {TURNS} calls each", calls),
        Figure("attempts on nodes: the manager's processor, of local", _where(there), ratio, wanted=RATIO, note=each),
        Figure(f"with {TURNS} calls each: the manager's processor, ms", _where(calls), calls.each_ms),
    ]


def _late(what: str, run: Measured) -> Figure:
    beside = f"{run.busy_ms:.1f} in processor time, {run.idle_ms:.1f} of a process that does nothing"
    note = f"{beside}; {run.landed:,} landed in {run.seconds:.0f} s; {machine()}"
    return Figure(f"{what}: delay of the manager's loop, ms, p99", _where(run), run.late_ms, wanted=LATE_MS, note=note)


def _where(run: Measured) -> str:
    return f"{run.at_once:,} at once"


def measured(project: Project, trial: Trial) -> Measured:
    """Return the measurements of a run in a separate process. Raises `RuntimeError` unless all subtasks landed."""
    folder = project.folder / trial.name
    folder.mkdir()
    (folder / "plan.json").write_text(trial.plan, encoding="utf-8")
    (folder / "repository").symlink_to(project.repository)
    command = [sys.executable, "-B", "-m", "bench.many_attempts", trial.name, str(folder)]
    env = plain_environment() | {"HOME": str(folder)}
    with canned_server(THINK_S) as service:
        text = trial.configuration(folder / "state", service if trial.turns else NO_SERVICE)
        (folder / "config.toml").write_text(text, encoding="utf-8")
        with Idle() as idle:
            done = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True)
    found = Measured(**{**json.loads(done.stdout), "idle_ms": worst_hundredth(idle.late_ms)})
    branch = f"refs/heads/{result_branch(RunId(trial.name))}"
    files = len(git(project.repository, "ls-tree", "-r", "--name-only", branch, "done/").splitlines())
    if (found.landed, files) != (trial.subtasks, trial.subtasks):
        raise RuntimeError(f"{found.landed} of {trial.subtasks} subtasks landed, with {files} files")
    return found


# ---- a run, in a process of its own


async def run_once(name: str, folder: Path) -> Measured:
    """A whole run in this process."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    loaded = load_config(environ=environ, config_file=folder / "config.toml", user_file=None)
    fleet, delay = Fleet(loaded, environ), LoopDelay()
    plan = load_plan(folder / "plan.json", fleet.wiring.known)
    run = await fleet.create(Order(goal="files", repository=(folder / "repository").resolve(), name=name, plan=plan))
    started, used = time.perf_counter(), used_ms()
    async with create_task_group() as tasks:
        tasks.start_soon(delay.watch)
        state = await fleet.run(run, stop=CancelScope())
        tasks.cancel_scope.cancel()
    own_ms, seconds = used_ms() - used, time.perf_counter() - started
    with Journal(run.journal) as journal:
        at_once = most_at_once(fact for _, fact in journal.each())
    late_ms, busy_ms = worst_hundredth(delay.late_ms), worst_hundredth(delay.busy_ms)
    return Measured(late_ms, busy_ms, own_ms, seconds, state.commits, at_once)


def worst_hundredth(values: Sequence[float]) -> float:
    """The 99th percentile."""
    return quantiles(values, n=100)[98]


def most_at_once(facts: Iterable[f.Fact]) -> int:
    """Attempts that had begun to work and not ended."""
    working, most = set[str](), 0
    for fact in facts:
        if isinstance(fact, f.WorkerStarted):
            working.add(fact.subtask)
            most = max(most, len(working))
        elif isinstance(fact, f.AttemptCommitted | f.AttemptFailed):
            working.discard(fact.subtask)
    return most


def used_ms() -> float:
    """Processor time of this process alone."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return (usage.ru_utime + usage.ru_stime) * 1e3


def main() -> int:
    parser = command_line("bench.many_attempts", __doc__)
    parser.add_argument("name")
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    say(json.dumps(asdict(anyio.run(run_once, args.name, args.folder))))
    return 0


if __name__ == "__main__":
    exit_with(main)
