"""What the benchmarks share: repositories to measure on, a stopwatch, variants that take turns, and figures to print.

A figure is a ratio wherever it can be: what ours costs over what plain git costs, turn beside turn in one run, so that
a busy machine slows both.
"""

import os
import random
import resource
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Self

from fleet.ports import Change, Lease, Signature
from worktrees.lease import OverlayLease, SlotLease
from worktrees.settings import HandSettings, LeaseKind
from worktrees.target import inspect
from worktrees.workshop import Workshop, open_workshop

KINDS: tuple[LeaseKind, ...] = ("overlay", "pool")
LINE = 200  # commits above the first one of a generated repository
PATHS_A_COMMIT = 3
TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")
SHARED = Path("/dev/shm")  # noqa: S108 - the one file system that every Linux has in memory


# ---- measuring -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """Milliseconds, of the wall and of processors: ours and our children's."""

    wall: float
    processor: float

    def of_each(self, number: int) -> Self:
        """Where so many of the same were measured together."""
        return replace(self, wall=self.wall / number, processor=self.processor / number)


Variant = Callable[[int], Awaitable[Cost]]
Costs = Mapping[str, Sequence[Cost]]
Limits = Mapping[str, Mapping[int, float]]
"""What is wanted at most, by variant and by files."""


class Stopwatch:
    """Measures what happens in its block."""

    def __enter__(self) -> Self:
        self._processor, self._wall = processor_ms(), perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        wall = (perf_counter() - self._wall) * 1e3
        self.cost = Cost(wall, processor_ms() - self._processor)


def processor_ms() -> float:
    """Ours, and that of all children: those that ended, and those that stay and serve."""
    ended = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    total = sum(usage.ru_utime + usage.ru_stime for usage in ended) * 1e3
    for listed in Path("/proc/self/task").glob("*/children"):
        for pid in listed.read_text().split():
            total += _used_by(pid)
    return total


def _used_by(pid: str) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
        return 0.0
    return (int(fields[11]) + int(fields[12])) * TICK_MS


async def interleave(variants: Mapping[str, Variant], rounds: int, *, warm: int = 1) -> dict[str, list[Cost]]:
    """Every variant in every round, in changing order. The first rounds warm up and do not count."""
    chance, costs = random.Random(1), {name: list[Cost]() for name in variants}  # noqa: S311
    for number in range(rounds + warm):
        for name in chance.sample(list(variants), len(variants)):
            cost = await variants[name](number)
            if number >= warm:
                costs[name].append(cost)
    return costs


def typical(costs: Sequence[Cost]) -> Cost:
    """The median of the wall; the mean of the processor, whose clock may be coarser than a turn is long."""
    return Cost(median(cost.wall for cost in costs), fmean(cost.processor for cost in costs))


# ---- figures ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Figure:
    """One number, and the one that is wanted."""

    measure: str
    where: str
    value: float
    processor: float | None = None
    wanted: float | None = None
    at_least: bool = False
    note: str = ""

    @property
    def met(self) -> bool | None:
        """None where nothing is wanted."""
        if self.wanted is None:
            return None
        return self.value >= self.wanted if self.at_least else self.value <= self.wanted

    def __str__(self) -> str:
        processor = "" if self.processor is None else f"{self.processor:.4f}"
        sign = "at least" if self.at_least else "at most"
        wanted = "" if self.wanted is None else f"{sign} {self.wanted:g}"
        verdict = {None: "", True: "met", False: "NOT MET"}[self.met]
        cells = f"{self.measure:<51}{self.where:>13}  {self.value:>10.4f}{processor:>11}  {wanted:<15}{verdict:<9}"
        return f"{cells}{self.note}".rstrip()


HEAD = f"{'measure':<51}{'where':>13}  {'figure':>10}{'processor':>11}  wanted"


def ratios(measure: str, files: int, costs: Costs, *, git: str = "git", wanted: Limits) -> list[Figure]:
    """Each variant's cost over that of plain git."""
    base = typical(costs[git])
    found = []
    for name in costs:
        if name == git:
            continue
        ours = typical(costs[name])
        found.append(
            Figure(
                f"{measure}, {name}",
                sized(files),
                ours.wall / base.wall,
                ours.processor / max(base.processor, 0.001),
                wanted.get(name, {}).get(files),
                note=f"{ours.wall:.2f} of {base.wall:.2f} ms, processor {ours.processor:.2f} of {base.processor:.2f}",
            )
        )
    return found


def growth(measure: str, costs: Mapping[int, Cost], wanted: float | None = None) -> list[Figure]:
    """What ours costs in the largest repository over the smallest."""
    small, large = min(costs), max(costs)
    if small == large:
        return []
    least, most = costs[small], costs[large]
    where = f"{small // 1000}k to {large // 1000}k"
    processor = most.processor / max(least.processor, 0.001)
    return [Figure(f"growth: {measure}", where, most.wall / least.wall, processor, wanted)]


def sized(files: int) -> str:
    return f"{files:,} files"


def say(*lines: object) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


# ---- repositories ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ground:
    """A generated repository, its line of commits, oldest first, and a folder for what is measured on it."""

    folder: Path
    files: int
    line: tuple[str, ...]

    @property
    def repository(self) -> Path:
        return self.folder / "project"


@contextmanager
def room(at: Path | None = None) -> Iterator[Path]:
    """A folder in memory where there is that; gone afterwards."""
    place = at or (SHARED if SHARED.is_dir() else None)
    with TemporaryDirectory(prefix="fleet-bench-", dir=place, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def ground(files: int, at: Path | None = None, commits: int = LINE, among: int | None = None) -> Iterator[Ground]:
    with room(at) as folder:
        yield Ground(folder, files, tuple(generate(folder / "project", files, commits, among or files)))


def git(at: Path, *args: str, data: bytes = b"") -> str:
    done = subprocess.run(["git", *args], cwd=at, env=plain(), input=data, capture_output=True, check=True)
    return done.stdout.decode().strip()


def plain() -> dict[str, str]:
    """The environment of plain git: nobody's configuration, and no collection of garbage in the middle of a turn."""
    who = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    still = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "gc.auto", "GIT_CONFIG_VALUE_0": "0"}
    return {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1", **who, **still}


def name_of(number: int) -> str:
    """Twenty files a folder, fifty folders a part."""
    return f"src/part{number // 1000}/folder{number // 20 % 50}/module{number % 20}.py"


def generate(at: Path, files: int, commits: int, among: int) -> list[str]:
    """A repository with so many files, and a line of commits that change a few of the first ones. Oldest first."""
    who = "committer Ada <ada@example.org> 1700000000 +0000\n"
    stream: list[str] = [f"commit refs/heads/main\nmark :1\n{who}data 5\nstart\n"]
    for number in range(files):
        text = f"# file {number}\n" + f"value = {number}\n" * 60
        stream.append(f"M 100644 inline {name_of(number)}\ndata {len(text)}\n{text}\n")
    for commit in range(commits):
        stream.append(f"commit refs/heads/main\nmark :{commit + 2}\n{who}data 4\nnext\n")
        for part in range(PATHS_A_COMMIT):
            text = f"# changed by {commit}\n"
            number = (commit * PATHS_A_COMMIT + part) * 7919 % among
            stream.append(f"M 100644 inline {name_of(number)}\ndata {len(text)}\n{text}\n")
    at.mkdir(parents=True)
    git(at, "init", "--quiet", "--initial-branch=main")
    git(at, "fast-import", "--quiet", data="".join(stream).encode())
    git(at, "reset", "--quiet", "--hard")
    return git(at, "rev-list", "--reverse", "main").split()


# ---- our side --------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def hands(on: Ground, kind: LeaseKind, row: str) -> AsyncIterator[Workshop]:
    """Hands of one kind on that repository, with a store that no other row has used."""
    target = await inspect(on.repository)
    settings = HandSettings(state_dir=on.folder / "state" / f"{row}-{kind}", lease=kind)
    async with open_workshop(target, settings, f"{row}-{kind}", target.base) as workshop:
        yield workshop


def folder_of(lease: Lease) -> Path:
    """Where a tenant's edits can be made without a box: the folder itself, or what an overlay puts above it."""
    if isinstance(lease, OverlayLease):
        return lease.overlay.upper
    if not isinstance(lease, SlotLease):
        raise TypeError(f"nobody knows where {lease} is")
    return lease.slot.tree


def edit(folder: Path, paths: Sequence[str], text: str) -> None:
    for path in paths:
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def sign(run: str, subtask: str) -> Signature:
    return Signature(run=run, subtask=subtask, attempt=1, title="Change", body="", worker="coder", model=None)


def done(change: object) -> Change:
    if not isinstance(change, Change):
        raise TypeError(f"not committed: {change}")
    return change
