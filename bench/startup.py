"""The startup time of the program, compared with an idle interpreter: `python -c pass`.

The first agent is a worker of the kind `command`, which needs no model. Its time runs from the start of the process
`fleet run --plan` to the recorded start of the worker: configuration, journal, store, self-test of the sandbox and a
lease are included.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

from anyio import to_thread

from bench.hundred import TINY, FleetRun
from bench.side_by_side import Cost, Extent, Stopwatch, Variant, generated_project, interleave, plain_environment
from fleet.core.facts import facts as f
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder
from scripts.frame import Figure

HELP_AT_MOST, FIRST_AGENT_AT_MOST = 8.0, 25.0


async def startup_figures(extent: Extent) -> list[Figure]:
    """`fleet --help` and the first agent of `fleet run --plan`, each divided by `python -c pass`."""
    with generated_project(TINY, extent.folder, commits=1) as project:
        variants: dict[str, Variant] = {
            "pass": program("-c", "pass"),
            "help": program("-m", "fleet", "--help"),
            "first agent": FirstAgent(project, "overlay", "startup", count=1),
        }
        costs = await interleave(variants, 2 * extent.rounds)
    pass_ms, help_ms, agent_ms = (median(cost.wall for cost in costs[name]) for name in variants)
    return [
        _ratio("fleet --help", help_ms, pass_ms, HELP_AT_MOST),
        _ratio("first agent after fleet run --plan", agent_ms, pass_ms, FIRST_AGENT_AT_MOST),
    ]


def _ratio(measure: str, ms: float, pass_ms: float, wanted: float) -> Figure:
    return Figure(measure, "python -c pass", ms / pass_ms, wanted=wanted, note=f"{ms:.0f} of {pass_ms:.0f} ms")


def program(*arguments: str) -> Variant:
    """A run of the interpreter to its end."""

    def run() -> Cost:
        with Stopwatch() as watch:
            subprocess.run([sys.executable, *arguments], env=plain_environment(), check=True, capture_output=True)
        return watch.cost

    async def in_a_thread(_: int) -> Cost:
        return await to_thread.run_sync(run)

    return in_a_thread


@dataclass
class FirstAgent(FleetRun):
    """A run of one subtask, measured from the start of the program to the start of its worker."""

    to_first_agent_ms: float = 0.0

    async def __call__(self, number: int) -> Cost:
        whole = await super().__call__(number)
        return Cost(self.to_first_agent_ms, whole.processor)

    @contextmanager
    def beside(self, folder: RunFolder) -> Iterator[None]:
        started = time.time()
        yield
        with Journal(folder.journal) as journal:
            agents = [fact.at for _, fact in journal.facts() if isinstance(fact, f.WorkerStarted)]
        self.to_first_agent_ms = (agents[0] - started) * 1e3
