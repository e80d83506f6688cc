"""`make chaos`: how many faults of each level a run recovers from without a human, with intervals.

    python -m tests.chaos.rates [--episodes 200] [--hopeless 10] [--seed 1] [--jobs 2] [--level N | --only-hopeless]

Runs go side by side: most of their time they wait. Exit code 1 where a rate is below what is wanted, or where what
nobody can do ended in anything but a question.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import sqrt
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import monotonic

from tests.chaos.faults import LEVELS, WIRE, Json
from tests.chaos.hopeless import COMPLEX, HOPELESS, Verdict, conflicts, hopeless
from tests.chaos.lost import LOST, lost
from tests.chaos.play import Outcome, episodes, play
from tests.chaos.world import WORLD, Weathered, weathered

WANTED = {1: 0.99, 2: 0.98, 3: 0.97, 4: 0.95, 5: 0.90}
NAMES = {
    1: "transient API",
    2: "stream and tool protocol",
    3: "tool, sandbox, resource",
    4: "merge and verify",
    5: "plan-level and compound",
}
A_RUN = 40  # episodes that share a run
A_TURN = 4  # runs of a level whose results are looked at together
Z = 1.96  # of a 95 % interval


def wilson(good: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share."""
    if not of:
        return 0.0, 1.0
    share = good / of
    middle = (share + Z**2 / (2 * of)) / (1 + Z**2 / of)
    reach = Z / (1 + Z**2 / of) * sqrt(share * (1 - share) / of + Z**2 / (4 * of**2))
    return max(0.0, middle - reach), min(1.0, middle + reach)


def planner_troubles(level: int, chance: Random) -> list[Json]:
    """On the highest level, the planner's own calls go wrong as well."""
    if level != LEVELS[-1]:
        return []
    return [dict(one) for one in chance.sample(WIRE, 3)]


Map = Callable[[Callable[[int], list[Outcome]], Iterable[int]], Iterable[list[Outcome]]]


def level_outcomes(level: int, number: int, seed: int, folder: Path, side_by_side: Map = map) -> list[Outcome]:
    """So many faults that struck, in as many runs as it takes."""
    found: list[Outcome] = []
    run = 0
    while sum(one.struck for one in found) < number:
        missing = number - sum(one.struck for one in found)
        runs = range(run + 1, run + 1 + min(A_TURN, -(-missing // A_RUN)))
        size = max(5, min(A_RUN, -(-missing // len(runs))))
        for outcomes in side_by_side(partial(_one_run, level, size, seed, folder), runs):
            found += outcomes
        run += len(runs)
    return [one for one in found if one.struck]


def _one_run(level: int, size: int, seed: int, folder: Path, run: int) -> list[Outcome]:
    troubles = planner_troubles(level, Random(f"{seed}/{run}"))  # noqa: S311 - it is no secret
    batch = episodes(level, size, seed * 1000 + run)
    played = play(folder / f"{level}-{run}", batch, seed=seed, planner_faults=troubles)
    for one in played.outcomes:
        if one.struck and not (one.recovered and one.as_expected):
            _say(f"    L{level} run {run}, {one.ended}: {_told(one)}")
    _say(f"  L{level} run {run}: {sum(one.struck for one in played.outcomes)} faults")
    return list(played.outcomes)


def verdicts_of(number: int, seed: int, folder: Path) -> list[Callable[[], list[Verdict]]]:
    """What is to be played so that each kind comes so often: some share a run, each loss has one of its own."""
    others = [
        kind for kind in HOPELESS if kind != COMPLEX
    ]  # whose planner comes to nothing in the end, for all of them
    together = [partial(hopeless, folder, number, seed, each) for each in ([COMPLEX], others)]
    together.append(partial(conflicts, folder, number, seed))
    alone = [partial(_one_lost, kind, each, folder, seed) for each in range(number) for kind in LOST]
    return [*together, *alone] if number else []


def _one_lost(kind: str, number: int, folder: Path, seed: int) -> list[Verdict]:
    return [lost(kind, number, folder, seed)]


def _told(one: Outcome) -> str:
    fate = "recovered" if one.recovered else "a human was asked" if one.asked else "not landed"
    kinds = ", ".join(sorted(one.classes)) or "no incident"
    return f"{', '.join(one.episode.ids)}: row {one.episode.fault.row}, {one.episode.fault.name}: {fate} ({kinds})"


def table(results: dict[int, list[Outcome]]) -> list[str]:
    lines = [
        "| level | recovered / closed | rate | 95 % interval | attempts per success | wanted |",
        "|---|---|---|---|---|---|",
    ]
    for level, outcomes in results.items():
        good = sum(one.recovered for one in outcomes)
        low, high = wilson(good, len(outcomes))
        tried = sum(one.attempts for one in outcomes)
        landed = sum(len(one.episode.ids) for one in outcomes if one.landed)
        lines.append(
            f"| L{level} {NAMES[level]} | {good} / {len(outcomes)} | {good / len(outcomes):.1%} "
            f"| {low:.1%} to {high:.1%} | {tried / max(1, landed):.2f} | {WANTED[level]:.0%} |"
        )
    return lines


def by_row(outcomes: Iterable[Outcome]) -> list[str]:
    played, good = Counter[str](), Counter[str]()
    for one in outcomes:
        name = f"{one.episode.fault.row} {one.episode.fault.name}"
        played[name] += 1
        good[name] += one.recovered
    return [f"  row {name}: {good[name]} / {played[name]}" for name in sorted(played, key=lambda n: int(n.split()[0]))]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Recovery rates under scripted faults.")
    parser.add_argument("--episodes", type=int, default=200, help="faults of each level")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--level", type=int, action="append", choices=LEVELS, help="only this one")
    parser.add_argument(
        "--hopeless", type=int, default=10, help="of each kind that nobody can do, or that comes from outside"
    )
    parser.add_argument("--only-hopeless", action="store_true")
    parser.add_argument("--jobs", type=int, default=2, help="runs at once")
    parser.add_argument("--folder", type=Path, help="where the runs are kept; a temporary folder without it")
    given = parser.parse_args(arguments)
    levels = () if given.only_hopeless else given.level or LEVELS
    began = monotonic()
    with TemporaryDirectory(prefix="fleet-chaos-") as temporary, ThreadPoolExecutor(given.jobs) as jobs:
        folder = given.folder or Path(temporary)
        endings = [] if given.level else verdicts_of(given.hopeless, given.seed, folder)
        begun = [jobs.submit(ending) for ending in endings[:3]]  # these wait the longest
        results = {level: level_outcomes(level, given.episodes, given.seed, folder, jobs.map) for level in levels}
        begun += [jobs.submit(ending) for ending in endings[3:]]
        events = [] if given.level else [(kind, each) for each in range(given.hopeless) for kind in WORLD]
        passed = [jobs.submit(weathered, kind, each, folder, given.seed) for kind, each in events]
        verdicts = [verdict for done in begun for verdict in done.result()]
        weather = [done.result() for done in passed]
    if results:
        _say("", "Recovery without a human (simulated model)", "", *table(results), "")
        _say(*by_row(one for outcomes in results.values() for one in outcomes))
    _say(
        "",
        *hopeless_lines(verdicts),
        *world_lines(weather),
        f"seed {given.seed}, {given.jobs} runs at once, {monotonic() - began:.0f} s",
    )
    low = [level for level, found in results.items() if sum(o.recovered for o in found) / len(found) < WANTED[level]]
    fine = all(one.honest for one in verdicts) and all(one.unharmed for one in weather)
    return 0 if fine and not low else 1


def hopeless_lines(verdicts: Sequence[Verdict]) -> list[str]:
    if not verdicts:
        return []
    kinds = Counter(one.kind for one in verdicts)
    told = (
        f"What nobody can do: {len(verdicts)} of {len(kinds)} kinds; a human asked, or told at once: "
        f"{sum(one.asked for one in verdicts)}, false success: {sum(one.landed for one in verdicts)}, "
        f"endless: {sum(one.endless for one in verdicts)}, past a limit: {sum(not one.within for one in verdicts)}"
    )
    each = [f"  {kind}: {number}" for kind, number in kinds.items()]
    return [told, *each, *(f"  NOT AS WANTED: {one}" for one in verdicts if not one.honest), ""]


def world_lines(weather: Sequence[Weathered]) -> list[str]:
    if not weather:
        return []
    kinds = Counter(one.kind for one in weather)
    told = (
        f"What comes from outside and passes: {len(weather)} of {len(kinds)} kinds; landed without a human, and no "
        f"attempt lost: {sum(one.unharmed for one in weather)}"
    )
    each = [f"  {kind}: {number}" for kind, number in kinds.items()]
    return [told, *each, *(f"  NOT AS WANTED: {one}" for one in weather if not one.unharmed), ""]


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
