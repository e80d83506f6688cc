"""What a commit and a landing cost against plain git: scan and commit, one ready branch, and a hundred as one batch.

Run it alone: python -m tests.benchmarks.landing [--large]
"""

import argparse
import os
import random
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import anyio
from anyio import to_thread

from fleet.core.facts import Member
from tests.benchmarks import side_by_side as bench
from worktrees.changes import entries_in
from worktrees.commits import commit_entries
from worktrees.workshop import Workshop

CHANGED = 5
BATCH = 100
ONE_BY_ONE = 5
COMMIT: bench.Limits = {kind: {10_000: 1.2} for kind in bench.KINDS}
ONE: bench.Limits = {"fleet": {10_000: 0.20, 100_000: 0.03}}
MANY: bench.Limits = {"fleet": {10_000: 0.04, 100_000: 0.01}}
GROWTH = 1.3


@contextmanager
def added(on: bench.Ground, name: str) -> Iterator[Path]:
    """A worktree of plain git at the tip."""
    at = on.folder / name
    bench.git(on.repository, "worktree", "add", "--quiet", "--detach", str(at), on.line[-1])
    try:
        yield at
    finally:
        bench.git(on.repository, "worktree", "remove", "--force", str(at))


# ---- a commit --------------------------------------------------------------------------------------------------------


async def scan_and_commit(on: bench.Ground, rounds: int) -> bench.Costs:
    """Five changed files become a commit, whose tree has to be the one that git makes of them."""
    trees: dict[tuple[str, int], str] = {}

    def changed(number: int) -> list[str]:
        return random.Random(number).sample([bench.name_of(part) for part in range(on.files)], CHANGED)  # noqa: S311

    with added(on, "plain") as plain:

        async def by_git(number: int) -> bench.Cost:
            bench.git(plain, "reset", "--quiet", "--hard", on.line[-1])
            bench.edit(plain, changed(number), f"turn {number}\n")
            with bench.Stopwatch() as watch:
                await to_thread.run_sync(bench.git, plain, "add", "-A")
                await to_thread.run_sync(bench.git, plain, "commit", "--quiet", "-m", "x")
            trees["git", number] = bench.git(plain, "rev-parse", "HEAD^{tree}")
            return watch.cost

        def ours(kind: str, workshop: Workshop) -> bench.Variant:
            async def committed(number: int) -> bench.Cost:
                async with workshop.lease(on.line[-1]) as lease:
                    bench.edit(bench.folder_of(lease), changed(number), f"turn {number}\n")
                    with bench.Stopwatch() as watch:
                        change = bench.done(await lease.commit(bench.sign(f"commit-{kind}", f"s{number}"), ()))
                trees[kind, number] = await workshop.tree(change.commit)
                return watch.cost

            return committed

        async with AsyncExitStack() as stack:
            variants: dict[str, bench.Variant] = {"git": by_git}
            for kind in bench.KINDS:
                variants[kind] = ours(kind, await stack.enter_async_context(bench.hands(on, kind, "commit")))
            costs = await bench.interleave(variants, rounds)
    wrong = [(name, number) for (name, number), tree in trees.items() if tree != trees["git", number]]
    if wrong:
        raise RuntimeError(f"not the tree that git makes: {wrong}")
    return costs


# ---- landing ---------------------------------------------------------------------------------------------------------


async def candidates(on: bench.Ground, workshop: Workshop, count: int, name: str) -> tuple[Member, ...]:
    """Ready branches on the base, each with files of its own, in the store and in the user's repository."""
    members: list[Member] = []
    per = min(CHANGED, on.files // count)
    root = on.folder / f"sources-{name}"
    for number in range(count):
        own = [bench.name_of(part) for part in range(number, on.files, count)][:per]
        bench.edit(root, own, f"{name} {number}\n")
        change = bench.done(
            await commit_entries(
                workshop.store,
                on.line[-1],
                entries_in(root, [os.fsencode(path) for path in own]),
                signature=bench.sign(f"{name}-pool", f"{name}-{number}"),
                touches=(),
                protected=(),
                email="fleet@localhost",
            )
        )
        members.append(Member(subtask=f"{name}-{number}", attempt=1, commit=change.commit))
    store, refs = (
        str(workshop.store.git_dir),
        [f"{member.commit}:refs/heads/ready-{member.commit}" for member in members],
    )
    bench.git(on.repository, "-c", "uploadpack.allowAnySHA1InWant=true", "fetch", "--quiet", store, *refs)
    return tuple(members)


async def land(workshop: Workshop, run: str, members: tuple[Member, ...]) -> None:
    tip = await workshop.tip(run)
    merged = await workshop.merge(tip, members)
    if merged.conflicts or not await workshop.advance(run, new=merged.tip, old=tip):
        raise RuntimeError(f"did not land: {merged.conflicts}")


async def landing_one(on: bench.Ground, rounds: int) -> bench.Costs:
    """One ready branch lands on a tip that moved since its base: so many one by one, each a part of the turn.

    One alone takes two milliseconds, and may wait as long for a processor that idled beside the other side's turn.
    """
    run = "one-pool"
    async with bench.hands(on, "pool", "one") as workshop:
        with added(on, "merging") as at:
            ready = await candidates(on, workshop, (rounds + 1) * ONE_BY_ONE + 1, "one")
            await land(workshop, run, ready[-1:])
            merge(at, ready[-1])

            def turn(number: int) -> tuple[Member, ...]:
                return ready[number * ONE_BY_ONE :][:ONE_BY_ONE]

            async def by_git(number: int) -> bench.Cost:
                with bench.Stopwatch() as watch:
                    for member in turn(number):
                        await to_thread.run_sync(merge, at, member)
                return watch.cost.of_each(ONE_BY_ONE)

            async def ours(number: int) -> bench.Cost:
                with bench.Stopwatch() as watch:
                    for member in turn(number):
                        await land(workshop, run, (member,))
                return watch.cost.of_each(ONE_BY_ONE)

            return await bench.interleave({"git": by_git, "fleet": ours}, rounds)


async def landing_batch(on: bench.Ground, rounds: int) -> bench.Costs:
    """A hundred disjoint ready branches, against a merge each; the trees have to be those that merge-tree makes."""
    run = "batch-pool"
    async with bench.hands(on, "pool", "batch") as workshop:
        with added(on, "merging") as at:
            ready = await candidates(on, workshop, BATCH, "batch")

            async def by_git(_: int) -> bench.Cost:
                bench.git(at, "reset", "--quiet", "--hard", on.line[-1])
                with bench.Stopwatch() as watch:
                    for member in ready:
                        await to_thread.run_sync(merge, at, member)
                return watch.cost

            async def ours(_: int) -> bench.Cost:
                bench.git(workshop.store.git_dir, "update-ref", f"refs/fleet/{run}/tip", on.line[-1])
                with bench.Stopwatch() as watch:
                    await land(workshop, run, ready)
                return watch.cost

            costs = await bench.interleave({"git": by_git, "fleet": ours}, rounds, warm=1 if rounds > 1 else 0)
            await check_trees(on, workshop, ready)
            return costs


def merge(at: Path, member: Member) -> None:
    bench.git(at, "merge", "--quiet", "--no-edit", member.commit)


async def check_trees(on: bench.Ground, workshop: Workshop, ready: tuple[Member, ...]) -> None:
    merged, store, tip = await workshop.merge(on.line[-1], ready), workshop.store.git_dir, on.line[-1]
    for member, landed in zip(ready, merged.landed, strict=True):
        wanted = bench.git(store, "merge-tree", "--write-tree", tip, member.commit)
        tip = landed.commit
        if bench.git(store, "rev-parse", f"{tip}^{{tree}}") != wanted:
            raise RuntimeError(f"{member.subtask} landed on another tree than merge-tree makes")


# ---- figures ---------------------------------------------------------------------------------------------------------


async def measured(on: bench.Ground, rounds: int) -> dict[str, bench.Costs]:
    return {
        "scan and commit 5 files": await scan_and_commit(on, rounds),
        "land one ready branch": await landing_one(on, rounds),
        f"land {BATCH} ready branches at once": await landing_batch(on, max(1, rounds // 8)),
    }


def landing_figures(costs: Mapping[int, Mapping[str, bench.Costs]]) -> list[bench.Figure]:
    """The ratios at each size, and how the landing of one branch grows."""
    measures = list(next(iter(costs.values())))
    found: list[bench.Figure] = []
    for measure, wanted in zip(measures, (COMMIT, ONE, MANY), strict=True):
        for files, row in costs.items():
            found += bench.ratios(measure, files, row[measure], wanted=wanted)
    one = measures[1]
    return found + bench.growth(one, {files: bench.typical(row[one]["fleet"]) for files, row in costs.items()}, GROWTH)


async def main(*, large: bool) -> None:
    costs: dict[int, dict[str, bench.Costs]] = {}
    for files in (1_000, 10_000, 100_000) if large else (1_000, 10_000):
        with bench.ground(files) as on:
            costs[files] = await measured(on, 8 if files > 10_000 else 16)
    bench.say(bench.HEAD, *landing_figures(costs))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true", help="also with 100,000 files")
    given = parser.parse_args()
    anyio.run(lambda: main(large=given.large))
