"""Shared parts of the benchmarks: extent, stopwatch, alternating variants, generated repositories.

A figure is a ratio wherever possible: fleet's cost divided by plain git's, in alternating turns of one run, so that a
busy machine slows down both.
"""

import os
import random
import resource
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from time import perf_counter
from typing import Self

from fleet.app.wiring import Wiring
from fleet.config.load import default_config
from fleet.core.base.ids import RunId, Sha, SubtaskId
from fleet.ports.worktrees import Change, Lease, Signature
from scripts.frame import Figure, temporary_folder
from worktrees.base.settings import LeaseKind
from worktrees.leases.leases import WorktreeLease
from worktrees.leases.run_worktrees import RunWorktrees, open_worktrees
from worktrees.target.target import inspect

KINDS: tuple[LeaseKind, ...] = ("overlay", "pool")
COMMITS = 200  # above the first commit of a generated repository
PATHS_PER_COMMIT = 3
TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")


# ---- how much is measured --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Extent:
    """The amount and the number of measurements, and the location of files."""

    sizes: tuple[int, ...]
    """Files of the generated repositories."""
    rounds: int
    rounds_if_large: int
    """Rounds in repositories with more than 10,000 files."""
    whole_runs: int
    """Rounds of measurements that take many seconds each."""
    slots: int
    """Worktrees known to the pool."""
    simulated_hours: float
    storm_s: float
    turns: int
    """Turns of each of a thousand conversations."""
    journal_facts: int
    screen_s: float
    wide: int
    """Subtasks of a wide run."""
    keys: int
    """Keys pressed in the terminal UI."""
    folder: Path | None = None
    """None: in memory."""

    def rounds_at(self, files: int) -> int:
        return self.rounds_if_large if files > 10_000 else self.rounds


SMALL = Extent(
    sizes=(1_000, 10_000),
    rounds=5,
    rounds_if_large=3,
    whole_runs=1,
    slots=200,
    simulated_hours=10,
    storm_s=15,
    turns=5,
    journal_facts=20_000,
    screen_s=4,
    wide=1_000,
    keys=30,
)
FULL = Extent(
    sizes=(1_000, 10_000, 100_000),
    rounds=8,
    rounds_if_large=4,
    whole_runs=2,
    slots=1_000,
    simulated_hours=60,
    storm_s=30,
    turns=20,
    journal_facts=100_000,
    screen_s=15,
    wide=10_000,
    keys=100,
)


# ---- measuring -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """Milliseconds of wall time and of processor time, the latter of this process and its children."""

    wall: float
    processor: float

    def divided_by(self, count: int) -> Self:
        """The cost of each, if `count` of the same were measured together."""
        return replace(self, wall=self.wall / count, processor=self.processor / count)


Variant = Callable[[int], Awaitable[Cost]]
Costs = Mapping[str, Sequence[Cost]]
Limits = Mapping[str, Mapping[int, float]]
"""The largest ratio that is wanted, by variant and by number of files."""


class Stopwatch:
    """Measures what happens in its block."""

    def __enter__(self) -> Self:
        self._processor, self._wall = processor_ms(), perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        wall = (perf_counter() - self._wall) * 1e3
        self.cost = Cost(wall, processor_ms() - self._processor)


def processor_ms() -> float:
    """Processor time of this process and all its children: those that ended and those that keep serving."""
    ended = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    total = sum(usage.ru_utime + usage.ru_stime for usage in ended) * 1e3
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in children.read_text().split():
            total += processor_ms_of(int(pid))
    return total


def processor_ms_of(pid: int) -> float:
    """Return the processor time of a running process, or zero if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) * TICK_MS


async def interleave(variants: Mapping[str, Variant], rounds: int, *, warm: int = 1) -> dict[str, list[Cost]]:
    """Measure every variant in every round, in changing order. The first rounds warm up and do not count."""
    chance, costs = random.Random(1), {name: list[Cost]() for name in variants}  # noqa: S311
    for number in range(rounds + warm):
        for name in chance.sample(list(variants), len(variants)):
            cost = await variants[name](number)
            if number >= warm:
                costs[name].append(cost)
    return costs


def typical(costs: Sequence[Cost]) -> Cost:
    """Return the median of wall times, or the mean of processor times, whose clock may be coarser than a turn."""
    return Cost(median(cost.wall for cost in costs), fmean(cost.processor for cost in costs))


def ratios(measure: str, files: int, costs: Costs, *, base: str = "git", wanted: Limits) -> list[Figure]:
    """Each variant's cost divided by that of the base variant."""
    base_cost = typical(costs[base])
    figures = []
    for name in costs:
        if name == base:
            continue
        cost = typical(costs[name])
        wall = f"{cost.wall:.2f} of {base_cost.wall:.2f} ms"
        processor = f"processor {cost.processor:.2f} of {base_cost.processor:.2f}"
        figures.append(
            Figure(
                f"{measure}, {name}",
                files_label(files),
                cost.wall / base_cost.wall,
                cost.processor / max(base_cost.processor, 0.001),
                wanted.get(name, {}).get(files),
                note=f"{wall}, {processor}",
            )
        )
    return figures


def growth(measure: str, costs: Mapping[int, Cost], wanted: float | None = None) -> list[Figure]:
    """Fleet's cost in the largest repository divided by that in the smallest."""
    small, large = min(costs), max(costs)
    if small == large:
        return []
    least, most = costs[small], costs[large]
    where = f"{small // 1000}k to {large // 1000}k"
    processor = most.processor / max(least.processor, 0.001)
    return [Figure(f"growth: {measure}", where, most.wall / least.wall, processor, wanted)]


def files_label(files: int) -> str:
    return f"{files:,} files"


# ---- repositories ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Project:
    """A generated repository, its commits (oldest first), and its parent directory for measurements."""

    folder: Path
    files: int
    commits: tuple[Sha, ...]

    @property
    def repository(self) -> Path:
        return self.folder / "project"


@contextmanager
def generated_project(
    files: int, folder: Path | None = None, *, commits: int = COMMITS, changed_among: int | None = None
) -> Iterator[Project]:
    """Generate a project with a number of files. Its commits change a few of them, or of the first `changed_among`."""
    with temporary_folder(folder) as at:
        made = _generate(at / "project", files, commits, changed_among or files)
        yield Project(at, files, tuple(made))


def git(at: Path, *args: str, data: bytes = b"") -> str:
    done = subprocess.run(["git", *args], cwd=at, env=plain_environment(), input=data, capture_output=True, check=True)
    return done.stdout.decode().strip()


def plain_environment() -> dict[str, str]:
    """The environment of plain git: no user's configuration, and no garbage collection in the middle of a turn."""
    people = {f"GIT_{role}_{what}": "a@b" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    no_gc = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "gc.auto", "GIT_CONFIG_VALUE_0": "0"}
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", **people, **no_gc}


def path_of(number: int) -> str:
    """The path of a file of the project: twenty files per folder, fifty folders per part."""
    return f"src/part{number // 1000}/folder{number // 20 % 50}/module{number % 20}.py"


def _generate(at: Path, files: int, commits: int, changed_among: int) -> list[Sha]:
    committer = "committer Ada <ada@example.org> 1700000000 +0000\n"
    stream: list[str] = [f"commit refs/heads/main\nmark :1\n{committer}data 5\nstart\n"]
    for number in range(files):
        text = f"# file {number}\n" + f"value = {number}\n" * 60
        stream.append(f"M 100644 inline {path_of(number)}\ndata {len(text)}\n{text}\n")
    for commit in range(commits):
        stream.append(f"commit refs/heads/main\nmark :{commit + 2}\n{committer}data 4\nnext\n")
        for part in range(PATHS_PER_COMMIT):
            text = f"# changed by {commit}\n"
            number = (commit * PATHS_PER_COMMIT + part) * 7919 % changed_among
            stream.append(f"M 100644 inline {path_of(number)}\ndata {len(text)}\n{text}\n")
    at.mkdir(parents=True)
    git(at, "init", "--quiet", "--initial-branch=main")
    git(at, "fast-import", "--quiet", data="".join(stream).encode())
    git(at, "reset", "--quiet", "--hard")
    return [Sha(id_) for id_ in git(at, "rev-list", "--reverse", "main").split()]


# ---- fleet's side ----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def worktrees_on(project: Project, kind: LeaseKind, row: str) -> AsyncIterator[RunWorktrees]:
    """Worktrees of one kind on this project, with a store that no other row uses."""
    target = await inspect(project.repository)
    state_dir = project.folder / "state" / f"{row}-{kind}"
    settings = Wiring(default_config(), {}).worktrees
    chosen = settings.worktrees.model_copy(update={"lease": kind})
    settings = replace(settings, state_dir=state_dir, worktrees=chosen)
    async with open_worktrees(target, settings, RunId(f"{row}-{kind}"), target.base) as worktrees:
        yield worktrees


def folder_of(lease: Lease) -> Path:
    """Return a directory for edits without a sandbox: the worktree itself, or the upper directory of an overlay."""
    if not isinstance(lease, WorktreeLease):
        raise TypeError(f"no known folder: {lease}")
    place = lease.workspace.place
    return place.overlay.upper if place.overlay else place.tree


def edit(folder: Path, paths: Sequence[str], text: str) -> None:
    for path in paths:
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def signature(run: RunId, subtask: str) -> Signature:
    return Signature(
        run=run, subtask=SubtaskId(subtask), attempt=1, title="Change", body="", worker="coder", model=None
    )


def committed(change: object) -> Change:
    if not isinstance(change, Change):
        raise TypeError(f"not committed: {change}")
    return change
