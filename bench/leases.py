"""The cost of a lease compared with plain git: time, disk, the effect of many known worktrees, and the sandbox.

Also checks that each of a hundred workers that start at the same time gets one.
"""

import os
import subprocess
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
from anyio import create_task_group

from bench.side_by_side import (
    KINDS,
    Cost,
    Costs,
    Extent,
    Limits,
    Project,
    Stopwatch,
    Variant,
    edit,
    files_label,
    folder_of,
    generated_project,
    git,
    growth,
    interleave,
    path_of,
    ratios,
    typical,
    worktrees_on,
)
from fleet.ports.worktrees import EffectError, Lease
from scripts.frame import Figure, progress
from worktrees.base.process import Launch, run
from worktrees.base.settings import LeaseKind
from worktrees.leases.leases import WorktreeLease
from worktrees.leases.run_worktrees import RunWorktrees

STEP = 20  # commits that the tip moves by between two leases
EDITED = tuple(path_of(number * 11) for number in range(5))
WORKERS = 100
RACY_S = 1.2
"""Git reads files again that are as young as its index. In practice, no worker is that quick."""
LEASE, RETURN = "lease, tip moved by 20", "give back, 5 files changed"
WANTED: Limits = {
    "overlay": {10_000: 0.02, 100_000: 0.005},
    "pool": {10_000: 1.0, 100_000: 1.0},
}
WANTED_GROWTH, WANTED_DISK, WANTED_KNOWN, WANTED_BOX_MS = 1.5, 0.02, 1.2, 10.0
GROWTH_ROUNDS, STARTS = 9, 10


async def lease_figures(extent: Extent) -> list[Figure]:
    """The ratios at each size, the disk that leases take, and growth."""
    leased: dict[int, Costs] = {}
    returned: dict[int, Costs] = {}
    figures: list[Figure] = []
    for files in extent.sizes:
        progress(f"leases in {files_label(files)}")
        with generated_project(files, extent.folder) as project:
            leased[files], returned[files] = await against_add(project, extent.rounds_at(files))
            if files == extent.sizes[-1]:
                figures.append(await disk_of_leases(project))
    for measure, costs, wanted in ((LEASE, leased, WANTED), (RETURN, returned, {})):
        for files, row in costs.items():
            figures += ratios(measure, files, row, wanted=wanted)
    return figures + await growth_of_leases(extent)


async def box_figures(extent: Extent) -> list[Figure]:
    """Known worktrees, the box, and a hundred workers at once, where the size of the repository does not matter."""
    figures: list[Figure] = []
    with generated_project(100, extent.folder) as project:
        figures.append(await many_known(project, "overlay", 1_000, 8 * extent.rounds))
        figures.append(await many_known(project, "pool", extent.slots, 8 * extent.rounds))
        figures += await command_in_a_box(project, 8 * extent.rounds)
        for kind in KINDS:
            figures.append(await all_at_once(project, kind))
    return figures


# ---- a lease ---------------------------------------------------------------------------------------------------------


async def against_add(project: Project, rounds: int) -> tuple[Costs, Costs]:
    """Leasing and giving back, against adding a worktree and removing it."""
    tips = project.commits[::STEP]
    returned: dict[str, list[Cost]] = {"git": [], **{kind: [] for kind in KINDS}}

    async def add(number: int) -> Cost:
        tree = project.folder / f"added-{number}"
        with Stopwatch() as watch:
            git(project.repository, "worktree", "add", "--quiet", "--detach", str(tree), tips[number + 1])
        edit(tree, EDITED, f"edited in round {number}\n")
        with Stopwatch() as removal:
            git(project.repository, "worktree", "remove", "--force", str(tree))
        returned["git"].append(removal.cost)
        return watch.cost

    async with AsyncExitStack() as stack:
        variants: dict[str, Variant] = {"git": add}
        for kind in KINDS:
            worktrees = await stack.enter_async_context(worktrees_on(project, kind, "lease"))
            variants[kind] = leasing(project, worktrees, returned=returned[kind])
        tested = await stack.enter_async_context(worktrees_on(project, "overlay", "tested"))
        variants["overlay, tested tip"] = leasing(project, tested, tip_is_tested=True)
        leased = await interleave(variants, rounds)
    return leased, {name: costs[-rounds:] for name, costs in returned.items()}


def leasing(
    project: Project, worktrees: RunWorktrees, *, tip_is_tested: bool = False, returned: list[Cost] | None = None
) -> Variant:
    """A lease after a tenant changed a few files and the tip moved."""
    tips = project.commits[::STEP]

    async def lease_at_next_tip(number: int) -> Cost:
        async with AsyncExitStack() as stack:
            lease = await stack.enter_async_context(worktrees.lease(tips[number]))
            edit(folder_of(lease), EDITED, f"edited in round {number}\n")
            with Stopwatch() as giving_back:
                await stack.aclose()
        if returned is not None:
            returned.append(giving_back.cost)
        if tip_is_tested:
            async with worktrees.lease(tips[number + 1]):  # as the checks do before the tip moves there
                pass
        async with AsyncExitStack() as stack:
            with Stopwatch() as watch:
                await stack.enter_async_context(worktrees.lease(tips[number + 1]))
        if number == 0:
            await anyio.sleep(RACY_S)
        return watch.cost

    return lease_at_next_tip


async def growth_of_leases(extent: Extent) -> list[Figure]:
    """Growth of an overlay lease, in turns, in repositories that only differ in the number of other files."""
    sizes = (extent.sizes[0], extent.sizes[-1])
    async with AsyncExitStack() as stack:
        variants: dict[str, Variant] = {}
        for files in sizes:
            project = stack.enter_context(generated_project(files, extent.folder, changed_among=min(sizes)))
            worktrees = await stack.enter_async_context(worktrees_on(project, "overlay", "growth"))
            variants[str(files)] = leasing(project, worktrees)
        costs = await interleave(variants, GROWTH_ROUNDS)
    return growth("overlay lease", {files: typical(costs[str(files)]) for files in sizes}, WANTED_GROWTH)


async def disk_of_leases(project: Project) -> Figure:
    """Disk space of a hundred overlay leases, each with a change, against as many checkouts."""
    async with worktrees_on(project, "overlay", "disk") as worktrees, AsyncExitStack() as stack:
        for number in range(WORKERS):
            lease = await stack.enter_async_context(worktrees.lease(project.commits[number % STEP]))
            edit(folder_of(lease), EDITED, f"edited by {number}\n")
        if worktrees.leases.overlays is None:
            raise TypeError("this row measures overlays")
        used = disk_usage(worktrees.leases.overlays.home)
    checkout = disk_usage(project.repository / "src")
    note = f"{used / 1e6:.0f} MB; one checkout has {checkout / 1e6:.0f}"
    measure = f"disk of {WORKERS} overlay leases"
    return Figure(measure, files_label(project.files), used / checkout / WORKERS, wanted=WANTED_DISK, note=note)


def disk_usage(folder: Path) -> int:
    out = subprocess.run(["du", "-sk", str(folder)], capture_output=True, check=True).stdout
    return int(out.split()[0]) * 1024


# ---- many worktrees, the box, many workers ---------------------------------------------------------------------------


async def many_known(project: Project, kind: LeaseKind, known: int, rounds: int) -> Figure:
    """Measure leasing and returning with this many known worktrees, compared with ten."""

    def leasing(worktrees: RunWorktrees) -> Variant:
        async def lease(number: int) -> Cost:
            with Stopwatch() as watch:
                async with worktrees.lease(project.commits[number % 2]):
                    pass
            return watch.cost

        return lease

    async with AsyncExitStack() as stack:
        variants: dict[str, Variant] = {}
        for count in (10, known):
            worktrees = await stack.enter_async_context(worktrees_on(project, kind, f"known{count}"))
            async with AsyncExitStack() as leases:
                for _ in range(count):
                    await leases.enter_async_context(worktrees.lease(project.commits[0]))
            variants[str(count)] = leasing(worktrees)
        costs = await interleave(variants, rounds)
    few, many = typical(costs["10"]), typical(costs[str(known)])
    return Figure(
        f"lease and release, {known} known against 10, {kind}",
        files_label(project.files),
        many.wall / few.wall,
        many.processor / max(few.processor, 0.001),
        WANTED_KNOWN,
        note=f"{many.wall:.2f} of {few.wall:.2f} ms",
    )


async def command_in_a_box(project: Project, rounds: int) -> list[Figure]:
    """Milliseconds that a box of each kind adds to the smallest command."""

    async def outside(_: int) -> Cost:
        with Stopwatch() as watch:
            await run(Launch(("true",), {"PATH": os.environ["PATH"]}), timeout_s=60, cap=100)
        return watch.cost

    def boxed(worktrees: RunWorktrees, lease: Lease) -> Variant:
        if not isinstance(lease, WorktreeLease):
            raise TypeError(f"no known place: {lease}")
        place = lease.workspace.place

        async def inside(_: int) -> Cost:
            with Stopwatch() as watch:
                await worktrees.leases.box.run(place, ("true",), timeout_s=60, cap=100)
            return watch.cost

        return inside

    async with AsyncExitStack() as stack:
        variants: dict[str, Variant] = {"outside": outside}
        for kind in KINDS:
            worktrees = await stack.enter_async_context(worktrees_on(project, kind, "box"))
            lease = await stack.enter_async_context(worktrees.lease(project.commits[-1]))
            variants[kind] = boxed(worktrees, lease)
        costs = await interleave(variants, rounds)
    base = typical(costs["outside"])
    figures = []
    for kind in KINDS:
        cost = typical(costs[kind])
        wall, processor = cost.wall - base.wall, cost.processor - base.processor
        note = f"milliseconds: {cost.wall:.2f} inside, {base.wall:.2f} outside"
        measure = f"the box adds to a command, {kind}"
        figures.append(Figure(measure, "ms, p50", wall, processor, WANTED_BOX_MS, note=note))
    return figures


async def all_at_once(project: Project, kind: LeaseKind) -> Figure:
    """Failed leases of a hundred that start together in a new run, all held until the last one has its own."""
    failures: list[str] = []

    async def lease(worktrees: RunWorktrees, number: int, all_hold_one: anyio.Event) -> None:
        try:
            async with worktrees.lease(project.commits[number % STEP]) as held:
                edit(folder_of(held), EDITED, f"edited by {number}\n")
                holders.append(number)
                if len(holders) == WORKERS:
                    all_hold_one.set()
                with anyio.move_on_after(60):
                    await all_hold_one.wait()
        except EffectError as error:
            failures.append(str(error))
            all_hold_one.set()

    for start in range(STARTS):
        holders: list[int] = []
        all_hold_one = anyio.Event()
        async with worktrees_on(project, kind, f"once{start}") as worktrees, create_task_group() as workers:
            for number in range(WORKERS):
                workers.start_soon(lease, worktrees, number, all_hold_one)
    measure = f"{WORKERS} workers at once, {kind}: failed leases"
    return Figure(measure, f"{STARTS} times", len(failures), wanted=0, note="; ".join(failures[:3]))
