"""What a lease costs beside plain git, on generated repositories: time, room, what many known slots add to it, and the
box; and whether a hundred workers that begin at once each get one.

Run it alone: python -m tests.benchmarks.leases [--large]
"""

import argparse
import os
import subprocess
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
from anyio import create_task_group

from fleet.ports import Broken, Lease
from tests.benchmarks import side_by_side as bench
from worktrees.lease import OverlayLease, SlotLease
from worktrees.process import Launch, run
from worktrees.settings import LeaseKind
from worktrees.workshop import Workshop

STEP = 20  # commits that the tip moves by between two leases
EDITED = tuple(bench.name_of(number * 11) for number in range(5))
AT_ONCE = 100
YOUNG_S = 1.2  # git reads files again that are as young as its index; no tenant is gone so soon
WANTED: bench.Limits = {
    "overlay": {10_000: 0.02, 100_000: 0.005},
    "pool": {10_000: 0.10, 100_000: 0.10},
}
GROWTH = 1.5
ROOM = 0.02
LEASE, BACK = "lease, tip moved by 20", "give back, 5 files changed"
KNOWN = 1.2
BOX_MS = 10.0


def leasing(
    on: bench.Ground, workshop: Workshop, *, tested: bool = False, given_back: list[bench.Cost] | None = None
) -> bench.Variant:
    """A lease after a tenant changed a few files and the tip moved."""
    tips = on.line[::STEP]

    async def leased(round_: int) -> bench.Cost:
        async with AsyncExitStack() as stack:
            lease = await stack.enter_async_context(workshop.lease(tips[round_]))
            bench.edit(bench.folder_of(lease), EDITED, f"edited in round {round_}\n")
            with bench.Stopwatch() as back:
                await stack.aclose()
        if given_back is not None:
            given_back.append(back.cost)
        if tested:
            async with workshop.lease(tips[round_ + 1]):  # as its checks do before the tip moves there
                pass
        async with AsyncExitStack() as stack:
            with bench.Stopwatch() as watch:
                await stack.enter_async_context(workshop.lease(tips[round_ + 1]))
        if round_ == 0:
            await anyio.sleep(YOUNG_S)
        return watch.cost

    return leased


async def against_add(on: bench.Ground, rounds: int) -> dict[str, bench.Costs]:
    """A lease, against adding a worktree there; and giving back, before it, against removing one."""
    tips = on.line[::STEP]
    given_back: dict[str, list[bench.Cost]] = {"git": [], **{kind: [] for kind in bench.KINDS}}

    async def add(round_: int) -> bench.Cost:
        tree = on.folder / f"added-{round_}"
        with bench.Stopwatch() as watch:
            bench.git(on.repository, "worktree", "add", "--quiet", "--detach", str(tree), tips[round_ + 1])
        bench.edit(tree, EDITED, f"edited in round {round_}\n")
        with bench.Stopwatch() as back:
            bench.git(on.repository, "worktree", "remove", "--force", str(tree))
        given_back["git"].append(back.cost)
        return watch.cost

    async with AsyncExitStack() as stack:
        variants: dict[str, bench.Variant] = {"git": add}
        for kind in bench.KINDS:
            workshop = await stack.enter_async_context(bench.hands(on, kind, "lease"))
            variants[kind] = leasing(on, workshop, given_back=given_back[kind])
        landed = await stack.enter_async_context(bench.hands(on, "overlay", "landed"))
        variants["overlay, tested tip"] = leasing(on, landed, tested=True)
        leased = await bench.interleave(variants, rounds)
    return {LEASE: leased, BACK: {name: costs[-rounds:] for name, costs in given_back.items()}}


async def growth_of_leases(sizes: Sequence[int], rounds: int, at: Path | None = None) -> list[bench.Figure]:
    """Of an overlay, in repositories that differ in nothing but how many other files they have, turn beside turn."""
    async with AsyncExitStack() as stack:
        variants: dict[str, bench.Variant] = {}
        for files in sizes:
            on = stack.enter_context(bench.ground(files, at, among=min(sizes)))
            variants[str(files)] = leasing(on, await stack.enter_async_context(bench.hands(on, "overlay", "growth")))
        costs = await bench.interleave(variants, rounds)
    return bench.growth("overlay lease", {files: bench.typical(costs[str(files)]) for files in sizes}, GROWTH)


async def room_of_leases(on: bench.Ground) -> bench.Figure:
    """Disk of a hundred overlay leases, each with a change, against as many checkouts."""
    async with bench.hands(on, "overlay", "room") as workshop, AsyncExitStack() as stack:
        for number in range(AT_ONCE):
            lease = await stack.enter_async_context(workshop.lease(on.line[number % STEP]))
            bench.edit(bench.folder_of(lease), EDITED, f"edited by {number}\n")
        if workshop.overlays is None:
            raise TypeError("this row measures overlays")
        used = blocks(workshop.overlays.home)
    one = blocks(on.repository / "src")
    note = f"{used / 1e6:.0f} MB; one checkout has {one / 1e6:.0f}"
    return bench.Figure(
        f"disk of {AT_ONCE} overlay leases", bench.sized(on.files), used / one / AT_ONCE, wanted=ROOM, note=note
    )


def blocks(folder: Path) -> int:
    out = subprocess.run(["du", "-sk", str(folder)], capture_output=True, check=True).stdout
    return int(out.split()[0]) * 1024


async def many_slots(on: bench.Ground, kind: LeaseKind, most: int, rounds: int) -> bench.Figure:
    """Leasing and giving back while so many are known, against ten."""

    def leasing(workshop: Workshop) -> bench.Variant:
        async def leased(round_: int) -> bench.Cost:
            with bench.Stopwatch() as watch:
                async with workshop.lease(on.line[round_ % 2]):
                    pass
            return watch.cost

        return leased

    async with AsyncExitStack() as stack:
        variants: dict[str, bench.Variant] = {}
        for number in (10, most):
            workshop = await stack.enter_async_context(bench.hands(on, kind, f"known{number}"))
            async with AsyncExitStack() as held:
                for _ in range(number):
                    await held.enter_async_context(workshop.lease(on.line[0]))
            variants[str(number)] = leasing(workshop)
        costs = await bench.interleave(variants, rounds)
    few, many = bench.typical(costs["10"]), bench.typical(costs[str(most)])
    return bench.Figure(
        f"lease and release, {most} known against 10, {kind}",
        bench.sized(on.files),
        many.wall / few.wall,
        many.processor / max(few.processor, 0.001),
        KNOWN,
        note=f"{many.wall:.2f} of {few.wall:.2f} ms",
    )


async def command_in_the_box(on: bench.Ground, rounds: int) -> list[bench.Figure]:
    """The smallest command, in a box of each kind and outside: what the box adds, in milliseconds."""

    async def outside(_: int) -> bench.Cost:
        with bench.Stopwatch() as watch:
            await run(Launch(("true",), {"PATH": os.environ["PATH"]}), timeout_s=60, cap=100)
        return watch.cost

    def boxed(workshop: Workshop, lease: Lease) -> bench.Variant:
        if not isinstance(lease, OverlayLease | SlotLease):
            raise TypeError(f"nobody knows where {lease} is")
        place = lease.place if isinstance(lease, OverlayLease) else lease.slot.place

        async def inside(_: int) -> bench.Cost:
            with bench.Stopwatch() as watch:
                await workshop.box.run(place, ("true",), timeout_s=60, cap=100)
            return watch.cost

        return inside

    async with AsyncExitStack() as stack:
        variants: dict[str, bench.Variant] = {"outside": outside}
        for kind in bench.KINDS:
            workshop = await stack.enter_async_context(bench.hands(on, kind, "box"))
            variants[kind] = boxed(workshop, await stack.enter_async_context(workshop.lease(on.line[-1])))
        costs = await bench.interleave(variants, rounds)
    base = bench.typical(costs["outside"])
    found = []
    for kind in bench.KINDS:
        cost = bench.typical(costs[kind])
        more, used = cost.wall - base.wall, cost.processor - base.processor
        note = f"milliseconds: {cost.wall:.2f} inside, {base.wall:.2f} outside"
        found.append(bench.Figure(f"the box adds to a command, {kind}", "ms, p50", more, used, BOX_MS, note=note))
    return found


async def at_once(on: bench.Ground, kind: LeaseKind, times: int) -> bench.Figure:
    """Leases that failed of a hundred that began together in a new run, all held until the last one has its own."""
    failed: list[str] = []

    async def lease(workshop: Workshop, number: int, all_here: anyio.Event) -> None:
        try:
            async with workshop.lease(on.line[number % STEP]) as leased:
                bench.edit(bench.folder_of(leased), EDITED, f"edited by {number}\n")
                here.append(number)
                if len(here) == AT_ONCE:
                    all_here.set()
                with anyio.move_on_after(60):
                    await all_here.wait()
        except Broken as broken:
            failed.append(str(broken))
            all_here.set()

    for time in range(times):
        here: list[int] = []
        all_here = anyio.Event()
        async with bench.hands(on, kind, f"once{time}") as workshop, create_task_group() as workers:
            for number in range(AT_ONCE):
                workers.start_soon(lease, workshop, number, all_here)
    measure = f"{AT_ONCE} workers at once, {kind}: failed leases"
    return bench.Figure(measure, f"{times} times", len(failed), wanted=0, note="; ".join(failed[:3]))


def lease_figures(costs: dict[int, dict[str, bench.Costs]]) -> list[bench.Figure]:
    """The ratios at each size."""
    found: list[bench.Figure] = []
    for measure, wanted in ((LEASE, WANTED), (BACK, {})):
        for files, rows in costs.items():
            found += bench.ratios(measure, files, rows[measure], wanted=wanted)
    return found


async def small_ground(most: Sequence[tuple[LeaseKind, int]], rounds: int, times: int) -> list[bench.Figure]:
    """The rows whose repository does not matter."""
    found: list[bench.Figure] = []
    with bench.ground(100) as on:
        for kind, number in most:
            found.append(await many_slots(on, kind, number, rounds))
        found += await command_in_the_box(on, rounds)
        for kind in bench.KINDS:
            found.append(await at_once(on, kind, times))
    return found


async def main(*, large: bool) -> None:
    costs: dict[int, dict[str, bench.Costs]] = {}
    rooms: list[bench.Figure] = []
    sizes = (1_000, 10_000, 100_000) if large else (1_000, 10_000)
    for files in sizes:
        with bench.ground(files) as on:
            costs[files] = await against_add(on, 5 if files > 10_000 else 8)
            rooms = [await room_of_leases(on)]
    rooms += await growth_of_leases((sizes[0], sizes[-1]), 9)
    most = 1_000 if large else 200
    bench.say(
        bench.HEAD, *lease_figures(costs), *rooms, *await small_ground([("overlay", 1_000), ("pool", most)], 60, 10)
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true", help="also 100,000 files and 1,000 slots")
    given = parser.parse_args()
    anyio.run(lambda: main(large=given.large))
