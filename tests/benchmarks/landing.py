"""What a commit and a landing cost against plain git, side by side in one run: ratios of wall and processor time.

    python tests/benchmarks/landing.py [--files 1000 10000] [--rounds 20] [--large]

Repositories are generated in memory (/dev/shm) where there is that. The variants of a row take turns, in changing
order, each on a worktree or a branch of its own. A ratio is the median of ours over the median of git's; the growth of
a row is what ours costs in the largest repository over the smallest.
"""

import argparse
import os
import random
import resource
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import anyio

from fleet.core.facts import Member
from fleet.ports import Change, Signature
from worktrees.changes import entries_in
from worktrees.commits import commit_entries
from worktrees.lease import SlotLease
from worktrees.settings import HandSettings
from worktrees.target import inspect
from worktrees.workshop import Workshop, open_workshop

RUN = "bench"
CHANGED = 5
BATCH = 100
TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")
Variant = Callable[[int], Awaitable[None]]


@dataclass(frozen=True)
class Spent:
    """Milliseconds of one turn."""

    wall: float
    processor: float


@dataclass(frozen=True)
class Row:
    """One measure at one size: what each variant cost, turn by turn."""

    name: str
    files: int
    turns: Mapping[str, tuple[Spent, ...]]

    def cost(self, variant: str) -> Spent:
        turns = self.turns[variant]
        return Spent(median(turn.wall for turn in turns), median(turn.processor for turn in turns))

    def ratio(self, ours: str, theirs: str = "git") -> Spent:
        mine, other = self.cost(ours), self.cost(theirs)
        return Spent(mine.wall / other.wall, mine.processor / other.processor)


@dataclass(frozen=True)
class Ground:
    """A generated repository, its files, and the hands opened on it."""

    repository: Path
    paths: tuple[str, ...]
    hands: Workshop
    base: str


# ---- a repository ----------------------------------------------------------------------------------------------------


def git(at: Path, *args: str) -> str:
    env = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }
    options = ("-c", "gc.auto=0", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *options, *args], cwd=at, env=env, capture_output=True, check=True)
    return done.stdout.decode().strip()


def paths_of(files: int) -> tuple[str, ...]:
    """Twenty files a folder, fifty folders a part."""
    return tuple(f"part{n // 1000}/folder{n // 20 % 50}/module{n % 20}.py" for n in range(files))


def memory() -> Path | None:
    shared = Path("/dev/shm")  # noqa: S108 - the one other file system that every Linux has
    return shared if shared.is_dir() else None


def make_repository(at: Path, files: int) -> tuple[str, ...]:
    chance, paths = random.Random(files), paths_of(files)  # noqa: S311 - the same repository every time
    for path in paths:
        (at / path).parent.mkdir(parents=True, exist_ok=True)
        (at / path).write_text("".join(f"value_{chance.random()} = {line}\n" for line in range(20)), encoding="utf-8")
    git(at, "init", "--quiet")
    git(at, "add", "-A")
    git(at, "commit", "--quiet", "-m", "start")
    git(at, "repack", "-adq")
    return paths


@asynccontextmanager
async def ground(files: int) -> AsyncIterator[Ground]:
    with TemporaryDirectory(prefix="fleet-bench-", dir=memory()) as folder:
        repository = Path(folder, "project")
        paths = make_repository(repository, files)
        target = await inspect(repository)
        settings = HandSettings(state_dir=Path(folder, "state"), sandbox="none")
        async with open_workshop(target, settings, RUN, target.base) as hands:
            yield Ground(repository, paths, hands, target.base)


def edit(root: Path, paths: tuple[str, ...], turn: int) -> None:
    for path in paths:
        with (root / path).open("a", encoding="utf-8") as file:
            file.write(f"# turn {turn}\n")


# ---- measuring -------------------------------------------------------------------------------------------------------


def processor_ms() -> float:
    """Ours, and that of all children: those that ended, and those that stay and serve."""
    ended = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    total = sum(usage.ru_utime + usage.ru_stime for usage in ended) * 1000
    for listed in Path("/proc/self/task").glob("*/children"):
        for pid in listed.read_text().split():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) * TICK_MS
    return total


async def interleaved(
    variants: Mapping[str, Variant], rounds: int, *, before: Callable[[str, int], None] | None = None
) -> dict[str, tuple[Spent, ...]]:
    """Every variant in every round, in changing order; the first round warms up and is not counted."""
    chance, turns = random.Random(1), {name: list[Spent]() for name in variants}  # noqa: S311
    for number in range(rounds + 1):
        for name in chance.sample(list(variants), len(variants)):
            if before is not None:
                before(name, number)
            processor, wall = processor_ms(), perf_counter()
            await variants[name](number)
            spent = Spent((perf_counter() - wall) * 1000, processor_ms() - processor)
            if number:
                turns[name].append(spent)
    return {name: tuple(spent) for name, spent in turns.items()}


# ---- rows ------------------------------------------------------------------------------------------------------------


async def scan_and_commit(on: Ground, rounds: int) -> Row:
    """Five changed files become a commit: found by a scan, or known as an overlay's upper layer is."""
    settings, store = on.hands.settings, on.hands.store
    plain = on.repository.parent / "plain"
    git(on.repository, "worktree", "add", "--quiet", "--detach", str(plain), on.base)
    async with on.hands.lease(on.base) as scanned, on.hands.lease(on.base) as known:
        if not isinstance(scanned, SlotLease) or not isinstance(known, SlotLease):
            raise TypeError("this row measures slots")
        roots = {"git": plain, "slot": scanned.slot.tree, "known changes": known.slot.tree}

        def changed(number: int) -> tuple[str, ...]:
            return tuple(random.Random(number).sample(on.paths, CHANGED))  # noqa: S311

        def before(name: str, number: int) -> None:
            git(roots[name], "reset", "--quiet", "--hard", on.base)
            edit(roots[name], changed(number), number)

        async def by_git(_: int) -> None:
            await anyio.to_thread.run_sync(git, plain, "add", "-A")
            await anyio.to_thread.run_sync(git, plain, "commit", "--quiet", "-m", "x")

        async def by_scan(number: int) -> None:
            done(await scanned.commit(sign(f"scan-{number}"), ()))

        async def by_known(number: int) -> None:
            entries = entries_in(known.slot.tree, [os.fsencode(path) for path in changed(number)])
            named = {"touches": (), "protected": settings.protected, "email": settings.email}
            done(await commit_entries(store, on.base, entries, signature=sign(f"known-{number}"), **named))  # type: ignore[arg-type]

        variants = {"git": by_git, "slot": by_scan, "known changes": by_known}
        turns = await interleaved(variants, rounds, before=before)
    git(on.repository, "worktree", "remove", "--force", str(plain))
    return Row("scan and commit 5 changed files", len(on.paths), turns)


async def candidates(on: Ground, count: int, name: str) -> tuple[Member, ...]:
    """Ready branches on the base, each with files of its own, in the store and in the user's repository."""
    members: list[Member] = []
    per = min(CHANGED, len(on.paths) // count)
    root = on.repository.parent / "sources"
    for number in range(count):
        own = on.paths[number::count][:per]
        for path in own:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(f"{name} {number}\n", encoding="utf-8")
        entries = entries_in(root, [os.fsencode(path) for path in own])
        change = done(
            await commit_entries(
                on.hands.store,
                on.base,
                entries,
                signature=sign(f"{name}-{number}"),
                touches=(),
                protected=(),
                email="fleet@localhost",
            )
        )
        members.append(Member(subtask=f"{name}-{number}", attempt=1, commit=change.commit))
    bring(on, [member.commit for member in members])
    return tuple(members)


def bring(on: Ground, commits: list[str]) -> None:
    """Give the user's repository the objects, so that plain git can merge them."""
    refs = [f"{commit}:refs/heads/ready-{commit}" for commit in commits]
    store = str(on.hands.store.git_dir)
    git(on.repository, "-c", "uploadpack.allowAnySHA1InWant=true", "fetch", "--quiet", store, *refs)


@asynccontextmanager
async def merging(on: Ground) -> AsyncIterator[Path]:
    at = on.repository.parent / "merging"
    git(on.repository, "worktree", "add", "--quiet", "--detach", str(at), on.base)
    try:
        yield at
    finally:
        git(on.repository, "worktree", "remove", "--force", str(at))


async def land(on: Ground, members: tuple[Member, ...]) -> str:
    tip = await on.hands.tip(RUN)
    merged = await on.hands.merge(tip, members)
    if merged.conflicts or not await on.hands.advance(RUN, new=merged.tip, old=tip):
        raise RuntimeError(f"did not land: {merged.conflicts}")
    return merged.tip


async def landing_one(on: Ground, rounds: int) -> Row:
    """One ready branch lands on a tip that moved since its base."""
    ready = await candidates(on, rounds + 2, "one")
    await land(on, ready[-1:])
    async with merging(on) as at:
        git(at, "merge", "--quiet", "--no-edit", ready[-1].commit)

        async def by_git(number: int) -> None:
            await anyio.to_thread.run_sync(git, at, "merge", "--quiet", "--no-edit", ready[number].commit)

        async def ours(number: int) -> None:
            await land(on, ready[number : number + 1])

        turns = await interleaved({"git": by_git, "fleet": ours}, rounds)
    return Row("land one ready branch", len(on.paths), turns)


async def landing_batch(on: Ground, rounds: int) -> Row:
    """A hundred disjoint ready branches, against a merge each; the trees have to be those that merge-tree makes."""
    ready = await candidates(on, BATCH, "batch")
    async with merging(on) as at:

        async def by_git(_: int) -> None:
            for member in ready:
                await anyio.to_thread.run_sync(git, at, "merge", "--quiet", "--no-edit", member.commit)

        async def ours(_: int) -> None:
            await land(on, ready)

        def before(name: str, _: int) -> None:
            if name == "git":
                git(at, "reset", "--quiet", "--hard", on.base)
            else:
                git(on.hands.store.git_dir, "update-ref", f"refs/fleet/{RUN}/tip", on.base)

        turns = await interleaved({"git": by_git, "fleet": ours}, rounds, before=before)
    await check_trees(on, ready)
    return Row(f"land {BATCH} disjoint ready branches", len(on.paths), turns)


async def check_trees(on: Ground, ready: tuple[Member, ...]) -> None:
    merged, store, tip = await on.hands.merge(on.base, ready), on.hands.store.git_dir, on.base
    for member, landed in zip(ready, merged.landed, strict=True):
        wanted = git(store, "merge-tree", "--write-tree", tip, member.commit)
        tip = landed.commit
        if git(store, "rev-parse", f"{tip}^{{tree}}") != wanted:
            raise RuntimeError(f"{member.subtask} landed on another tree than merge-tree makes")


def sign(subtask: str) -> Signature:
    return Signature(run=RUN, subtask=subtask, attempt=1, title="Change", body="", worker="coder", model=None)


def done(change: object) -> Change:
    if not isinstance(change, Change):
        raise TypeError(f"not committed: {change}")
    return change


# ---- the table -------------------------------------------------------------------------------------------------------


async def measure(files: int, rounds: int) -> list[Row]:
    async with ground(files) as on:
        return [
            await scan_and_commit(on, rounds),
            await landing_one(on, rounds),
            await landing_batch(on, max(1, rounds // 10)),
        ]


def table(rows: list[Row]) -> str:
    head = f"{'measure':<36}{'files':>8}  {'variant':<15}{'ms':>9}{'cpu ms':>9}{'of git':>9}{'cpu of git':>12}"
    lines = [head]
    for row in rows:
        for name in row.turns:
            cost, ratio = row.cost(name), row.ratio(name)
            lines.append(
                f"{row.name:<36}{row.files:>8}  {name:<15}{cost.wall:>9.2f}{cost.processor:>9.2f}"
                f"{ratio.wall:>9.3f}{ratio.processor:>12.3f}"
            )
    for measure_name in dict.fromkeys(row.name for row in rows):
        same = [row for row in rows if row.name == measure_name]
        for name in same[0].turns:
            most, least = same[-1].cost(name), same[0].cost(name)
            growth = f"{most.wall / least.wall:.2f} wall, {most.processor / least.processor:.2f} cpu"
            lines.append(f"growth {same[0].files} to {same[-1].files} files: {measure_name}, {name}: {growth}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--large", action="store_true", help="also with 100,000 files")
    chosen = parser.parse_args()
    rows: list[Row] = []
    for files in sorted({*chosen.files, *([100_000] if chosen.large else [])}):
        rows += anyio.run(partial(measure, files, chosen.rounds))
    sys.stdout.write(table(rows) + "\n")


if __name__ == "__main__":
    main()
