"""What a lease costs beside plain git, on generated repositories: time, room, and what many known slots add to it.

Variants take turns, so that a busy machine slows all of them; read the ratios. Run it where creating files is cheap and
even: python tests/benchmarks/leases.py [--large] [--folder /dev/shm]
"""

import argparse
import os
import resource
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Self

import anyio

from fleet.ports import Lease
from worktrees.lease import OverlayLease, SlotLease
from worktrees.process import Launch, run
from worktrees.settings import HandSettings, LeaseKind
from worktrees.target import inspect
from worktrees.workshop import Workshop, open_workshop

STEP = 20  # commits that the tip moves by between two leases
EDITS = 5  # files that a tenant changes
PATHS_A_COMMIT = 3
KINDS: tuple[LeaseKind, ...] = ("overlay", "pool")


@dataclass(frozen=True)
class Cost:
    """Milliseconds, of the wall and of processors: ours and our children's."""

    wall: float
    processor: float


Variant = Callable[[int], Awaitable[Cost]]


class Stopwatch:
    """Measures what happens in its block."""

    def __enter__(self) -> Self:
        self._processor, self._wall = processor_ms(), perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        wall = (perf_counter() - self._wall) * 1e3
        self.cost = Cost(wall, processor_ms() - self._processor)


def processor_ms() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used) * 1e3


def git(at: Path, *args: str, data: bytes = b"") -> str:
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    return subprocess.run(["git", *args], cwd=at, env=env, input=data, capture_output=True, check=True).stdout.decode()


def name_of(number: int) -> str:
    return f"src/d{number // 1000}/e{number % 1000 // 50}/file{number}.py"


def generate(at: Path, files: int, commits: int) -> list[str]:
    """A repository with so many files, and a line of commits above it that change a few each. Oldest first."""
    who = "committer Ada <ada@example.org> 1700000000 +0000\n"
    stream: list[str] = [f"commit refs/heads/main\nmark :1\n{who}data 5\nstart\n"]
    for number in range(files):
        text = f"# file {number}\n" + f"value = {number}\n" * 60
        stream.append(f"M 100644 inline {name_of(number)}\ndata {len(text)}\n{text}\n")
    for commit in range(commits):
        stream.append(f"commit refs/heads/main\nmark :{commit + 2}\n{who}data 4\nnext\n")
        for part in range(PATHS_A_COMMIT):
            text = f"# changed by {commit}\n"
            number = (commit * PATHS_A_COMMIT + part) * 7919 % files
            stream.append(f"M 100644 inline {name_of(number)}\ndata {len(text)}\n{text}\n")
    at.mkdir(parents=True)
    git(at, "init", "--quiet", "--initial-branch=main")
    git(at, "fast-import", "--quiet", data="".join(stream).encode())
    git(at, "reset", "--quiet", "--hard")
    return git(at, "rev-list", "--reverse", "main").split()


@asynccontextmanager
async def hands(repository: Path, state: Path, kind: LeaseKind) -> AsyncIterator[Workshop]:
    target = await inspect(repository)
    settings = HandSettings(state_dir=state / kind, lease=kind)
    async with open_workshop(target, settings, f"bench-{kind}", target.base) as workshop:
        yield workshop


async def interleave(variants: Mapping[str, Variant], rounds: int) -> dict[str, list[Cost]]:
    """The first round warms up and does not count."""
    costs: dict[str, list[Cost]] = {name: [] for name in variants}
    for number in range(rounds + 1):
        names = list(variants)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            cost = await variants[name](number)
            if number:
                costs[name].append(cost)
    return costs


def folder_of(lease: Lease) -> Path:
    """Where a tenant's edits can be made without a box."""
    if isinstance(lease, OverlayLease):
        return lease.overlay.upper
    assert isinstance(lease, SlotLease)
    return lease.slot.tree


def edit(folder: Path, round_: int) -> None:
    for number in range(EDITS):
        file = folder / name_of(number * 11)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"edited in round {round_}\n", encoding="utf-8")


async def lease_against_add(folder: Path, files: int, rounds: int) -> dict[str, list[Cost]]:
    """A lease after a tenant changed a few files and the tip moved, against adding a worktree there."""
    line = generate(folder / "repository", files, STEP * (rounds + 2))
    tips = line[::STEP]

    async def add(round_: int) -> Cost:
        tree = folder / f"added-{round_}"
        with Stopwatch() as watch:
            git(folder / "repository", "worktree", "add", "--quiet", "--detach", str(tree), tips[round_ + 1])
        git(folder / "repository", "worktree", "remove", "--force", str(tree))
        return watch.cost

    def leasing(workshop: Workshop) -> Variant:
        async def leased(round_: int) -> Cost:
            async with workshop.lease(tips[round_]) as lease:
                edit(folder_of(lease), round_)
            async with AsyncExitStack() as stack:
                with Stopwatch() as watch:
                    await stack.enter_async_context(workshop.lease(tips[round_ + 1]))
                return watch.cost

        return leased

    async with AsyncExitStack() as stack:
        variants: dict[str, Variant] = {"git worktree add": add}
        for kind in KINDS:
            workshop = await stack.enter_async_context(hands(folder / "repository", folder / "state", kind))
            variants[kind] = leasing(workshop)
        return await interleave(variants, rounds)


async def room_of_leases(folder: Path, files: int, leases: int) -> tuple[int, int]:
    """Bytes on disk of so many overlay leases, each with a change, and of one checkout."""
    line = generate(folder / "repository", files, STEP)
    async with hands(folder / "repository", folder / "state", "overlay") as workshop, AsyncExitStack() as stack:
        for number in range(leases):
            lease = await stack.enter_async_context(workshop.lease(line[number % len(line)]))
            edit(folder_of(lease), number)
        assert workshop.overlays is not None
        used = blocks(workshop.overlays.home)
    return used, blocks(folder / "repository" / "src")


def blocks(folder: Path) -> int:
    out = subprocess.run(["du", "-sk", str(folder)], capture_output=True, check=True).stdout
    return int(out.split()[0]) * 1024


async def many_slots(folder: Path, kind: LeaseKind, known: Sequence[int], rounds: int) -> dict[str, list[Cost]]:
    """Leasing and giving back while so many are known."""
    line = generate(folder / "repository", 10, 2)
    variants: dict[str, Variant] = {}

    def leasing(workshop: Workshop) -> Variant:
        async def leased(round_: int) -> Cost:
            with Stopwatch() as watch:
                async with workshop.lease(line[round_ % 2]):
                    pass
            return watch.cost

        return leased

    async with AsyncExitStack() as stack:
        for number in known:
            state = folder / f"state-{number}"
            workshop = await stack.enter_async_context(hands(folder / "repository", state, kind))
            async with AsyncExitStack() as held:
                for _ in range(number):
                    await held.enter_async_context(workshop.lease(line[0]))
            variants[str(number)] = leasing(workshop)
        return await interleave(variants, rounds)


async def command_in_the_box(folder: Path, rounds: int) -> dict[str, list[Cost]]:
    """The smallest command, in a box of each kind and outside."""
    generate(folder / "repository", 100, 1)

    async def outside(_: int) -> Cost:
        with Stopwatch() as watch:
            await run(Launch(("true",), {"PATH": os.environ["PATH"]}), timeout_s=60, cap=100)
        return watch.cost

    def boxed(workshop: Workshop, lease: Lease) -> Variant:
        assert isinstance(lease, OverlayLease | SlotLease)
        place = lease.place if isinstance(lease, OverlayLease) else lease.slot.place

        async def inside(_: int) -> Cost:
            with Stopwatch() as watch:
                await workshop.box.run(place, ("true",), timeout_s=60, cap=100)
            return watch.cost

        return inside

    async with AsyncExitStack() as stack:
        variants: dict[str, Variant] = {"outside": outside}
        for kind in KINDS:
            workshop = await stack.enter_async_context(hands(folder / "repository", folder / "state", kind))
            lease = await stack.enter_async_context(workshop.lease(workshop.publisher.target.base))
            variants[f"in the box, {kind}"] = boxed(workshop, lease)
        return await interleave(variants, rounds)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def report(title: str, costs: Mapping[str, Sequence[Cost]], against: str) -> dict[str, float]:
    """Print medians and their ratios; the ratios of wall time."""
    say(f"\n{title}")
    base = costs[against]
    ratios: dict[str, float] = {}
    for name, rows in costs.items():
        wall, processor = (median(getattr(row, field) for row in rows) for field in ("wall", "processor"))
        ratios[name] = wall / median(row.wall for row in base)
        part = processor / max(0.01, median(row.processor for row in base))
        worst = max(row.wall for row in rows)
        times = f"{wall:9.2f} ms {processor:9.2f} ms cpu"
        say(f"  {name:22} {times}  x{ratios[name]:.4f} wall  x{part:.4f} cpu  (worst {worst:.1f} ms)")
    return ratios


async def main(*, large: bool, at: Path | None) -> None:
    sizes = (1_000, 10_000, 100_000) if large else (1_000, 10_000)
    overlay: dict[int, float] = {}
    for files in sizes:
        with room(at) as folder:
            costs = await lease_against_add(folder, files, 5 if files > 10_000 else 9)
            report(f"lease at {files} files, after {EDITS} edits and {STEP} commits", costs, "git worktree add")
            overlay[files] = median(row.wall for row in costs["overlay"])
    grown = overlay[sizes[-1]] / overlay[sizes[0]]
    say(f"  growth of an overlay lease from {sizes[0]} to {sizes[-1]} files: x{grown:.2f}")
    with room(at) as folder:
        used, one = await room_of_leases(folder, sizes[-1], 100)
        part = used / one / 100
        say(f"\nroom of 100 overlay leases at {sizes[-1]} files: {used / 1e6:.0f} MB, x{part:.4f} of 100 checkouts")
    for kind in KINDS:
        most = 1_000 if large or kind == "overlay" else 200
        with room(at) as folder:
            costs = await many_slots(folder, kind, (10, most), 60)
            report(f"{kind}: lease and release with so many slots known", costs, "10")
    with room(at) as folder:
        costs = await command_in_the_box(folder, 100)
        report("a command that does nothing", costs, "outside")


@contextmanager
def room(at: Path | None) -> Iterator[Path]:
    with TemporaryDirectory(prefix="fleet-bench-", dir=at) as folder:
        yield Path(folder)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="also 100,000 files and 1,000 slots")
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"), help="where to generate")  # noqa: S108
    given = parser.parse_args()
    anyio.run(lambda: main(large=given.large, at=given.folder))
