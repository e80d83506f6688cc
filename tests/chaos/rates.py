"""`make chaos`: how many faults of each level a run recovers from without a human, with intervals.

    python -m tests.chaos.rates [--episodes 200] [--seed 1] [--level N] [--folder FOLDER]

Exit code 1 where a rate is below what is wanted, or where what nobody can do ended in anything but a question.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from math import sqrt
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import monotonic

from tests.chaos.faults import LEVELS, WIRE, Json
from tests.chaos.hopeless import Verdict, hopeless, revoked
from tests.chaos.play import Outcome, episodes, play

WANTED = {1: 0.99, 2: 0.98, 3: 0.97, 4: 0.95, 5: 0.90}
NAMES = {
    1: "transient API",
    2: "stream and tool protocol",
    3: "tool, sandbox, resource",
    4: "merge and verify",
    5: "plan-level and compound",
}
A_RUN = 40  # episodes that share a run
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


def level_outcomes(level: int, number: int, seed: int, folder: Path) -> list[Outcome]:
    """So many faults that struck, in as many runs as it takes."""
    found: list[Outcome] = []
    run = 0
    while sum(one.struck for one in found) < number:
        run += 1
        wanted = min(A_RUN, number - sum(one.struck for one in found))
        batch = episodes(level, max(wanted, 5), seed * 1000 + run)
        troubles = planner_troubles(level, Random(f"{seed}/{run}"))  # noqa: S311 - it is no secret
        played = play(folder / f"{level}-{run}", batch, seed=seed, planner_faults=troubles)
        found += played.outcomes
        for one in played.outcomes:
            if one.struck and not (one.recovered and one.as_expected):
                _say(f"    {one.ended}: {_told(one)}")
        _say(f"  L{level} run {run}: {sum(one.struck for one in found)} faults")
    return [one for one in found if one.struck]


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
    parser.add_argument("--level", type=int, action="append", choices=LEVELS)
    parser.add_argument("--hopeless", type=int, default=10, help="of each kind that nobody can do")
    parser.add_argument("--folder", type=Path, help="where the runs are kept; a temporary folder without it")
    given = parser.parse_args(arguments)
    began = monotonic()
    with TemporaryDirectory(prefix="fleet-chaos-") as temporary:
        folder = given.folder or Path(temporary)
        results = {level: level_outcomes(level, given.episodes, given.seed, folder) for level in given.level or LEVELS}
        verdicts = [] if given.level else [*hopeless(folder, given.hopeless, given.seed), revoked(folder, given.seed)]
    _say("", "Recovery without a human (simulated model)", "", *table(results), "")
    _say(*by_row(one for outcomes in results.values() for one in outcomes))
    _say("", *hopeless_lines(verdicts), f"seed {given.seed}, {monotonic() - began:.0f} s")
    low = [level for level, found in results.items() if sum(o.recovered for o in found) / len(found) < WANTED[level]]
    return 1 if low or not all(one.honest for one in verdicts) else 0


def hopeless_lines(verdicts: Sequence[Verdict]) -> list[str]:
    if not verdicts:
        return []
    asked, false, endless = (
        sum(one.asked for one in verdicts),
        sum(one.landed for one in verdicts),
        sum(one.endless for one in verdicts),
    )
    told = f"What nobody can do: {len(verdicts)}; a human asked: {asked}, false success: {false}, endless: {endless}"
    return [told, *(f"  {one}" for one in verdicts if not one.honest), ""]


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
