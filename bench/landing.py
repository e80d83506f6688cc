"""The cost of commits and landings compared with plain git: scan and commit, one ready branch, a hundred branches."""

import os
import random
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from anyio import to_thread

from bench.side_by_side import (
    KINDS,
    Cost,
    Costs,
    Extent,
    Limits,
    Project,
    Stopwatch,
    Variant,
    committed,
    edit,
    files_label,
    folder_of,
    generated_project,
    git,
    growth,
    interleave,
    path_of,
    ratios,
    signature,
    typical,
    worktrees_on,
)
from fleet.core.base.ids import RunId
from fleet.core.facts.facts import Member
from scripts.frame import Figure, progress
from worktrees.git.write_tree import changes_in
from worktrees.leases.commit import commit_changes
from worktrees.leases.run_worktrees import RunWorktrees

CHANGED = 5
BATCH = 100
IN_SEQUENCE = 5
WANTED_COMMIT: Limits = {kind: {10_000: 1.2} for kind in KINDS}
WANTED_ONE: Limits = {"fleet": {10_000: 0.20, 100_000: 0.03}}
WANTED_BATCH: Limits = {"fleet": {10_000: 0.04, 100_000: 0.01}}
WANTED_GROWTH = 1.3


async def landing_figures(extent: Extent) -> list[Figure]:
    """The ratios at each size, and how the landing of one branch grows."""
    commits: dict[int, Costs] = {}
    ones: dict[int, Costs] = {}
    batches: dict[int, Costs] = {}
    for files in extent.sizes:
        progress(f"commits and landings in {files_label(files)}")
        rounds = extent.rounds_at(files)
        with generated_project(files, extent.folder) as project:
            commits[files] = await scan_and_commit(project, rounds)
            ones[files] = await land_one(project, rounds)
            batches[files] = await land_batch(project, max(1, rounds // 8))
    one = "land one ready branch"
    return [
        *_at_each_size("scan and commit 5 files", commits, WANTED_COMMIT),
        *_at_each_size(one, ones, WANTED_ONE),
        *_at_each_size(f"land {BATCH} ready branches at once", batches, WANTED_BATCH),
        *growth(one, {files: typical(costs["fleet"]) for files, costs in ones.items()}, WANTED_GROWTH),
    ]


def _at_each_size(measure: str, costs: Mapping[int, Costs], wanted: Limits) -> list[Figure]:
    return [figure for files, row in costs.items() for figure in ratios(measure, files, row, wanted=wanted)]


@contextmanager
def plain_worktree(project: Project, name: str) -> Iterator[Path]:
    """A worktree of plain git at the newest commit."""
    at = project.folder / name
    git(project.repository, "worktree", "add", "--quiet", "--detach", str(at), project.commits[-1])
    try:
        yield at
    finally:
        git(project.repository, "worktree", "remove", "--force", str(at))


# ---- a commit --------------------------------------------------------------------------------------------------------


async def scan_and_commit(project: Project, rounds: int) -> Costs:
    """Commit five changed files. The tree must be identical to git's."""
    trees: dict[tuple[str, int], str] = {}

    def changed(number: int) -> list[str]:
        paths = [path_of(part) for part in range(project.files)]
        return random.Random(number).sample(paths, CHANGED)  # noqa: S311

    with plain_worktree(project, "plain") as plain:

        async def by_git(number: int) -> Cost:
            git(plain, "reset", "--quiet", "--hard", project.commits[-1])
            edit(plain, changed(number), f"turn {number}\n")
            with Stopwatch() as watch:
                await to_thread.run_sync(git, plain, "add", "-A")
                await to_thread.run_sync(git, plain, "commit", "--quiet", "-m", "x")
            trees["git", number] = git(plain, "rev-parse", "HEAD^{tree}")
            return watch.cost

        def by_fleet(kind: str, worktrees: RunWorktrees) -> Variant:
            async def commit(number: int) -> Cost:
                async with worktrees.lease(project.commits[-1]) as lease:
                    edit(folder_of(lease), changed(number), f"turn {number}\n")
                    with Stopwatch() as watch:
                        change = committed(await lease.commit(signature(RunId(f"commit-{kind}"), f"s{number}"), ()))
                trees[kind, number] = await worktrees.tree(change.commit)
                return watch.cost

            return commit

        async with AsyncExitStack() as stack:
            variants: dict[str, Variant] = {"git": by_git}
            for kind in KINDS:
                worktrees = await stack.enter_async_context(worktrees_on(project, kind, "commit"))
                variants[kind] = by_fleet(kind, worktrees)
            costs = await interleave(variants, rounds)
    wrong = [(name, number) for (name, number), tree in trees.items() if tree != trees["git", number]]
    if wrong:
        raise RuntimeError(f"not the tree that git makes: {wrong}")
    return costs


# ---- landing ---------------------------------------------------------------------------------------------------------


async def candidates(project: Project, worktrees: RunWorktrees, count: int, name: str) -> tuple[Member, ...]:
    """Return ready branches on the newest commit, with disjoint files, in the store and in the user's repository."""
    members: list[Member] = []
    files_each = min(CHANGED, project.files // count)
    root = project.folder / f"sources-{name}"
    settings = worktrees.leases.box.settings
    unprotected = replace(settings, checks=settings.checks.model_copy(update={"protected": ()}))
    for number in range(count):
        paths = [path_of(part) for part in range(number, project.files, count)][:files_each]
        edit(root, paths, f"{name} {number}\n")
        change = committed(
            await commit_changes(
                worktrees.store,
                project.commits[-1],
                changes_in(root, [os.fsencode(path) for path in paths]),
                signature=signature(RunId(f"{name}-pool"), f"{name}-{number}"),
                touches=(),
                settings=unprotected,
            )
        )
        members.append(Member(subtask=f"{name}-{number}", attempt=1, commit=change.commit))
    store = str(worktrees.store.git_dir)
    refs = [f"{member.commit}:refs/heads/ready-{member.commit}" for member in members]
    git(project.repository, "-c", "uploadpack.allowAnySHA1InWant=true", "fetch", "--quiet", store, *refs)
    return tuple(members)


async def land(worktrees: RunWorktrees, run: RunId, members: tuple[Member, ...]) -> None:
    tip = await worktrees.integrator.tip(run)
    merged = await worktrees.integrator.merge(tip, members)
    if merged.conflicts or not await worktrees.integrator.advance(run, new=merged.tip, old=tip):
        raise RuntimeError(f"did not land: {merged.conflicts}")


async def land_one(project: Project, rounds: int) -> Costs:
    """Land one ready branch on a tip that moved since its base: five in sequence, a fifth of their time each.

    A single landing takes two milliseconds, and an idle processor may need as long to wake up.
    """
    run = RunId("one-pool")
    async with worktrees_on(project, "pool", "one") as worktrees:
        with plain_worktree(project, "merging") as at:
            ready = await candidates(project, worktrees, (rounds + 1) * IN_SEQUENCE + 1, "one")
            await land(worktrees, run, ready[-1:])
            merge(at, ready[-1])

            def turn(number: int) -> tuple[Member, ...]:
                return ready[number * IN_SEQUENCE :][:IN_SEQUENCE]

            async def by_git(number: int) -> Cost:
                with Stopwatch() as watch:
                    for member in turn(number):
                        await to_thread.run_sync(merge, at, member)
                return watch.cost.divided_by(IN_SEQUENCE)

            async def by_fleet(number: int) -> Cost:
                with Stopwatch() as watch:
                    for member in turn(number):
                        await land(worktrees, run, (member,))
                return watch.cost.divided_by(IN_SEQUENCE)

            return await interleave({"git": by_git, "fleet": by_fleet}, rounds)


async def land_batch(project: Project, rounds: int) -> Costs:
    """Land a hundred disjoint ready branches as one batch. The trees must be those that merge-tree makes."""
    run = RunId("batch-pool")
    async with worktrees_on(project, "pool", "batch") as worktrees:
        with plain_worktree(project, "merging") as at:
            ready = await candidates(project, worktrees, BATCH, "batch")

            async def by_git(_: int) -> Cost:
                git(at, "reset", "--quiet", "--hard", project.commits[-1])
                with Stopwatch() as watch:
                    for member in ready:
                        await to_thread.run_sync(merge, at, member)
                return watch.cost

            async def by_fleet(_: int) -> Cost:
                git(worktrees.store.git_dir, "update-ref", f"refs/fleet/{run}/tip", project.commits[-1])
                with Stopwatch() as watch:
                    await land(worktrees, run, ready)
                return watch.cost

            costs = await interleave({"git": by_git, "fleet": by_fleet}, rounds, warm=1 if rounds > 1 else 0)
            await check_trees(project, worktrees, ready)
            return costs


def merge(at: Path, member: Member) -> None:
    git(at, "merge", "--quiet", "--no-edit", member.commit)


async def check_trees(project: Project, worktrees: RunWorktrees, ready: tuple[Member, ...]) -> None:
    store, tip = worktrees.store.git_dir, project.commits[-1]
    merged = await worktrees.integrator.merge(tip, ready)
    for member, landed in zip(ready, merged.landed, strict=True):
        expected = git(store, "merge-tree", "--write-tree", tip, member.commit)
        tip = landed.commit
        if git(store, "rev-parse", f"{tip}^{{tree}}") != expected:
            raise RuntimeError(f"{member.subtask} landed on a tree other than the one merge-tree makes")
