"""Every row of the benchmarks in one run, on generated repositories in memory; docs/benchmarks.md says how to read it.

    python -m tests.benchmarks [--small] [--folder FOLDER]

Rows are printed in groups, as each is complete. At the end stand those that are wanted and not met. Nothing is written
outside of a temporary folder, and how a figure turns out is no error: a busy machine is nobody's mistake.
"""

import argparse
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import anyio
from anyio import to_thread

from tests.benchmarks.caching import caching_figures
from tests.benchmarks.conversations import conversation_figures
from tests.benchmarks.hundred import TINY, hundred, hundred_figures
from tests.benchmarks.landing import landing_figures, measured
from tests.benchmarks.landing_policy import policy_figures
from tests.benchmarks.leases import against_add, growth_of_leases, lease_figures, room_of_leases, small_ground
from tests.benchmarks.planner_calls import planner_figures
from tests.benchmarks.resume import resumes
from tests.benchmarks.scrape import scrapes
from tests.benchmarks.side_by_side import HEAD, Costs, Figure, ground, say
from tests.benchmarks.storm import storm_figures
from tests.benchmarks.subtask import end_to_end, subtask_figures
from tests.benchmarks.terminal import attached_figures
from tests.benchmarks.terminal import figures as screen_figures


@dataclass(frozen=True)
class Extent:
    """How much is measured, and how often."""

    sizes: tuple[int, ...]
    rounds: int
    rounds_on_many: int
    """Rounds with more files than 10,000."""
    hundreds: int
    slots: int
    hours: float
    storm_s: float
    turns: int
    """Of each of a thousand conversations."""

    def rounds_at(self, files: int) -> int:
        return self.rounds_on_many if files > 10_000 else self.rounds


SMALL = Extent((1_000, 10_000), rounds=5, rounds_on_many=3, hundreds=1, slots=200, hours=10, storm_s=15, turns=5)
WHOLE = Extent(
    (1_000, 10_000, 100_000), rounds=8, rounds_on_many=4, hundreds=2, slots=1_000, hours=60, storm_s=30, turns=20
)


@dataclass
class Page:
    """What was printed."""

    figures: list[Figure]

    def add(self, figures: Iterable[Figure]) -> None:
        for figure in figures:
            self.figures.append(figure)
            say(figure)

    def sum_up(self, seconds: float) -> None:
        wanted = [figure for figure in self.figures if figure.met is not None]
        missed = [figure for figure in wanted if not figure.met]
        say("", f"{len(wanted) - len(missed)} of {len(wanted)} wanted figures met, in {seconds:.0f} s; {machine()}")
        say(*["not met:"] * bool(missed))
        for figure in missed:
            say(figure)


def machine() -> str:
    load = ", ".join(f"{part:.1f}" for part in os.getloadavg())
    return f"{os.cpu_count()} cores, load {load}"


def progress(doing: str) -> None:
    """For whoever waits: not a part of the page."""
    sys.stderr.write(f"... {doing}\n")


async def page(extent: Extent, at: Path | None) -> None:
    shown, began = Page([]), perf_counter()
    say(f"{machine()}; a figure is our cost over plain git's unless it says otherwise: wall, processor", "", HEAD)
    shown.add(policy_figures(extent.hours))
    shown.add(await scrapes(4 * extent.rounds))
    shown.add(await resumes())
    progress("a hundred conversations and the prompt cache")
    shown.add(await caching_figures(at))
    progress("a planner and a hundred reports")
    shown.add(await planner_figures())
    progress("many slots, the box, and a hundred workers at once")
    shown.add(await small_ground((("overlay", 1_000), ("pool", extent.slots)), 8 * extent.rounds, 10))
    leases: dict[int, dict[str, Costs]] = {}
    subtasks: dict[int, Costs] = {}
    landings: dict[int, dict[str, Costs]] = {}
    for files in extent.sizes:
        progress(f"leases, subtasks and landings on {files:,} files")
        with ground(files, at) as on:
            rounds = extent.rounds_at(files)
            leases[files] = await against_add(on, rounds)
            subtasks[files] = await end_to_end(on, rounds)
            landings[files] = await measured(on, rounds)
            if files == extent.sizes[-1]:
                shown.add([await room_of_leases(on)])
    shown.add(lease_figures(leases))
    shown.add(await growth_of_leases((extent.sizes[0], extent.sizes[-1]), 9, at))
    shown.add(subtask_figures(subtasks))
    shown.add(landing_figures(landings))
    for files, rounds in ((TINY, extent.hundreds + 1), (10_000, extent.hundreds)):
        progress(f"a hundred subtasks on {files:,} files")
        with ground(files, at, commits=1) as on:
            shown.add(hundred_figures(files, *await hundred(on, rounds)))
    progress("the screen: a thousand rows, a long journal, and beside the engine")
    for group in await to_thread.run_sync(lambda: list(screen_figures(small=extent is SMALL))):
        shown.add(group)
    with ground(TINY, at, commits=1) as on:
        shown.add(await attached_figures(on, extent.hundreds + 1))
    progress("a hundred workers in a storm")
    shown.add(await storm_figures(extent.storm_s, extent.hundreds))
    progress("a thousand conversations")
    shown.add(await to_thread.run_sync(conversation_figures, 1_000, extent.turns, extent.hundreds))
    shown.sum_up(perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="1,000 and 10,000 files, and few rounds")
    parser.add_argument("--folder", type=Path, default=None, help="where to generate (default: in memory)")
    given = parser.parse_args()
    with suppress(KeyboardInterrupt):
        anyio.run(page, SMALL if given.small else WHOLE, given.folder)


if __name__ == "__main__":
    main()
