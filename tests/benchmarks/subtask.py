"""One subtask end to end, without model and checks: lease, edit three files, scan, commit, land, record, release.

Plain git does the same with a worktree of its own for each subtask, as most fleets do. Run it alone:
python -m tests.benchmarks.subtask [--large]
"""

import argparse
import random
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
from anyio import to_thread

from fleet.core import facts as f
from fleet.journal import Journal
from tests.benchmarks import side_by_side as bench
from worktrees.settings import LeaseKind
from worktrees.workshop import Workshop

EDITED = 3
WARM = 2
WANTED: bench.Limits = {"overlay": {10_000: 0.03}, "pool": {10_000: 0.15}}
REPORT = f.Report(status="done", summary="did it")


def edited(files: int, number: int) -> list[str]:
    """The same for every variant, and other files each time, so that a merge has nothing to ask."""
    first = random.Random(7).randrange(files)  # noqa: S311
    return [bench.name_of((first + (number * EDITED + part) * 7919) % files) for part in range(EDITED)]


async def end_to_end(on: bench.Ground, rounds: int) -> bench.Costs:
    async with AsyncExitStack() as stack:
        integration = on.folder / "integration"
        bench.git(on.repository, "worktree", "add", "--quiet", "-b", "integration", str(integration), on.line[-1])
        variants: dict[str, bench.Variant] = {"git": plain_git(on, integration)}
        workshops: dict[str, Workshop] = {}
        for kind in bench.KINDS:
            workshop = await stack.enter_async_context(bench.hands(on, kind, "subtask"))
            journal = stack.enter_context(Journal.create(on.folder / f"journal-{kind}" / "journal.sqlite"))
            variants[kind] = ours(on, kind, workshop, journal)
            workshops[kind] = workshop
        costs = await bench.interleave(variants, rounds, warm=WARM)
        wanted = bench.git(integration, "rev-parse", "HEAD^{tree}")
        for name, workshop in workshops.items():
            if await workshop.tree(await workshop.tip(f"subtask-{name}")) != wanted:
                raise RuntimeError(f"{name} landed another tree than plain git")
        bench.git(on.repository, "worktree", "remove", "--force", str(integration))
        bench.git(on.repository, "branch", "--quiet", "-D", "integration")
    return costs


def plain_git(on: bench.Ground, integration: Path) -> bench.Variant:
    def subtask(number: int) -> bench.Cost:
        at, branch, paths = on.folder / f"worker-{number}", f"worker-{number}", edited(on.files, number)
        with bench.Stopwatch() as watch:
            bench.git(on.repository, "worktree", "add", "--quiet", "-b", branch, str(at), "integration")
            bench.edit(at, paths, f"edited by {number}\n")
            bench.git(at, "add", "-A")
            bench.git(at, "commit", "--quiet", "-m", "x")
            bench.git(integration, "merge", "--quiet", "--no-ff", "-m", "m", branch)
            bench.git(on.repository, "worktree", "remove", "--force", str(at))
            bench.git(on.repository, "branch", "--quiet", "-D", branch)
        return watch.cost

    async def turn(number: int) -> bench.Cost:
        return await to_thread.run_sync(subtask, number)

    return turn


def ours(on: bench.Ground, kind: LeaseKind, workshop: Workshop, journal: Journal) -> bench.Variant:
    run = f"subtask-{kind}"

    async def turn(number: int) -> bench.Cost:
        name, paths = f"s{number}", edited(on.files, number)
        with bench.Stopwatch() as watch:
            tip = await workshop.tip(run)
            async with workshop.lease(tip) as lease:
                bench.edit(bench.folder_of(lease), paths, f"edited by {number}\n")
                change = bench.done(await lease.commit(bench.sign(run, name), ()))
                await to_thread.run_sync(journal.append, begun(name, tip, change.commit, change.paths))
                merged = await workshop.merge(tip, (f.Member(subtask=name, attempt=1, commit=change.commit),))
                if not merged.landed or not await workshop.advance(run, new=merged.tip, old=tip):
                    raise RuntimeError(f"did not land: {merged.conflicts}")
                fact = f.BatchTested(at=time.time(), number=number, tip=merged.tip, landed=merged.landed)
                await to_thread.run_sync(journal.append, [fact])
        return watch.cost

    return turn


def begun(name: str, base: str, commit: str, paths: tuple[str, ...]) -> list[f.Fact]:
    """What the engine records of an attempt on its way to landing, in one group."""
    now = time.time()
    return [
        f.AttemptStarted(at=now, subtask=name, number=1, worker="coder", model=None, base=base, strategy="first"),
        f.WorkerStarted(at=now, subtask=name, number=1),
        f.AttemptCommitted(at=now, subtask=name, number=1, commit=commit, paths=paths, report=REPORT),
        f.AttemptVerified(at=now, subtask=name, number=1, checks=()),
    ]


def subtask_figures(costs: Mapping[int, bench.Costs]) -> list[bench.Figure]:
    found = [
        figure for files, row in costs.items() for figure in bench.ratios("one subtask", files, row, wanted=WANTED)
    ]
    for kind in bench.KINDS:
        found += bench.growth(f"one subtask, {kind}", {files: bench.typical(row[kind]) for files, row in costs.items()})
    return found


async def main(*, large: bool) -> None:
    costs: dict[int, bench.Costs] = {}
    for files in (1_000, 10_000, 100_000) if large else (1_000, 10_000):
        with bench.ground(files) as on:
            costs[files] = await end_to_end(on, 5 if files > 10_000 else 12)
    bench.say(bench.HEAD, *subtask_figures(costs))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true", help="also with 100,000 files")
    given = parser.parse_args()
    anyio.run(lambda: main(large=given.large))
