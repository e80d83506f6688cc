"""One subtask end to end, without model and checks: lease, edit three files, scan, commit, land, record, release.

Plain git does the same with a separate worktree for each subtask, as most other tools do.
"""

import random
import time
from contextlib import AsyncExitStack
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
from fleet.core.base.ids import RunId, Sha
from fleet.core.facts import facts as f
from fleet.runs.journal import Journal
from scripts.frame import Figure, progress
from worktrees.base.settings import LeaseKind
from worktrees.leases.run_worktrees import RunWorktrees

EDITED = 3
WARM = 2
WANTED: Limits = {"overlay": {10_000: 0.03}, "pool": {10_000: 0.5}}
REPORT = f.Report(status="done", summary="did it")


async def subtask_figures(extent: Extent) -> list[Figure]:
    """The ratios at each size, and growth."""
    costs: dict[int, Costs] = {}
    for files in extent.sizes:
        progress(f"subtasks in {files_label(files)}")
        with generated_project(files, extent.folder) as project:
            costs[files] = await end_to_end(project, extent.rounds_at(files))
    figures = [figure for files, row in costs.items() for figure in ratios("one subtask", files, row, wanted=WANTED)]
    for kind in KINDS:
        figures += growth(f"one subtask, {kind}", {files: typical(row[kind]) for files, row in costs.items()})
    return figures


async def end_to_end(project: Project, rounds: int) -> Costs:
    async with AsyncExitStack() as stack:
        integration = project.folder / "integration"
        base = project.commits[-1]
        git(project.repository, "worktree", "add", "--quiet", "-b", "integration", str(integration), base)
        variants: dict[str, Variant] = {"git": by_git(project, integration)}
        by_kind: dict[str, RunWorktrees] = {}
        for kind in KINDS:
            worktrees = await stack.enter_async_context(worktrees_on(project, kind, "subtask"))
            journal = stack.enter_context(Journal.create(project.folder / f"journal-{kind}" / "journal.sqlite"))
            variants[kind] = by_fleet(project, kind, worktrees, journal)
            by_kind[kind] = worktrees
        costs = await interleave(variants, rounds, warm=WARM)
        expected = git(integration, "rev-parse", "HEAD^{tree}")
        for name, worktrees in by_kind.items():
            if await worktrees.tree(await worktrees.integrator.tip(_run(name))) != expected:
                raise RuntimeError(f"{name} landed a tree other than plain git's")
    return costs


def edited_paths(files: int, number: int) -> list[str]:
    """Return paths that are the same for every variant and different in each turn, so that merges never conflict."""
    first = random.Random(7).randrange(files)  # noqa: S311
    return [path_of((first + (number * EDITED + part) * 7919) % files) for part in range(EDITED)]


def by_git(project: Project, integration: Path) -> Variant:
    def subtask(number: int) -> Cost:
        at, branch = project.folder / f"worker-{number}", f"worker-{number}"
        paths = edited_paths(project.files, number)
        with Stopwatch() as watch:
            git(project.repository, "worktree", "add", "--quiet", "-b", branch, str(at), "integration")
            edit(at, paths, f"edited by {number}\n")
            git(at, "add", "-A")
            git(at, "commit", "--quiet", "-m", "x")
            git(integration, "merge", "--quiet", "--no-ff", "-m", "m", branch)
            git(project.repository, "worktree", "remove", "--force", str(at))
            git(project.repository, "branch", "--quiet", "-D", branch)
        return watch.cost

    async def in_a_thread(number: int) -> Cost:
        return await to_thread.run_sync(subtask, number)

    return in_a_thread


def _run(kind: str) -> RunId:
    return RunId(f"subtask-{kind}")


def by_fleet(project: Project, kind: LeaseKind, worktrees: RunWorktrees, journal: Journal) -> Variant:
    run = _run(kind)

    async def subtask(number: int) -> Cost:
        name, paths = f"s{number}", edited_paths(project.files, number)
        with Stopwatch() as watch:
            tip = await worktrees.integrator.tip(run)
            async with worktrees.lease(tip) as lease:
                edit(folder_of(lease), paths, f"edited by {number}\n")
                change = committed(await lease.commit(signature(run, name), ()))
                await to_thread.run_sync(journal.append, attempt_facts(name, tip, change.commit, change.paths))
                member = f.Member(subtask=name, attempt=1, commit=change.commit)
                merged = await worktrees.integrator.merge(tip, (member,))
                if not merged.landed or not await worktrees.integrator.advance(run, new=merged.tip, old=tip):
                    raise RuntimeError(f"did not land: {merged.conflicts}")
                fact = f.BatchTested(at=time.time(), number=number, tip=merged.tip, landed=merged.landed)
                await to_thread.run_sync(journal.append, [fact])
        return watch.cost

    return subtask


def attempt_facts(name: str, base: Sha, commit: Sha, paths: tuple[str, ...]) -> list[f.Fact]:
    """Return the facts about an attempt before it lands, recorded in one transaction."""
    now = time.time()
    return [
        f.AttemptStarted(at=now, subtask=name, number=1, worker="coder", model=None, base=base, strategy="first"),
        f.WorkerStarted(at=now, subtask=name, number=1),
        f.AttemptCommitted(at=now, subtask=name, number=1, commit=commit, paths=paths, report=REPORT),
        f.AttemptVerified(at=now, subtask=name, number=1, checks=()),
    ]
