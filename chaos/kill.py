"""Kills runs with SIGKILL, at every crash point or at random points, resumes them, and checks the result.

    python -m chaos.kill points                               every crash point of every scenario, once each
    python -m chaos.kill points clash --share 1000            only the first and the last point of each name
    python -m chaos.kill seeds plain --seeds 30 --jobs 2      again and again, in each engine, until the run ends

Git, the sandboxes and the journal are real, and the agents are scripted. A reference run counts the crash points and
records the final tree. A killed process leaves everything that the kernel has. A power failure, which may lose data, is
not covered.
"""

import random
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from chaos.invariants import Aftermath, violations
from chaos.repeatable_run import ENDED, KILLED, KillPoint, Patch, RepeatableRun
from chaos.scenarios import SCENARIOS, Scenario
from scripts.frame import (
    Figure,
    Table,
    add_jobs,
    add_names,
    command_line,
    exit_with,
    forked_processes,
    temporary_folder,
)
from tests.worktrees.conftest import git

MAX_ENGINES = 150
NARROWEST, WIDEST = 60, 400
"""Crash points that an engine may reach before a seed kills it, at most."""
SHOWN = 20


@dataclass
class Trial:
    """A scenario, its reference run, and ways to kill it."""

    run: RepeatableRun
    before: dict[str, str]
    """The user's repository before the run."""
    points: list[str] = field(default_factory=list)
    """The crash points of the reference run."""
    tree: str = ""
    """The final tree of the reference run."""
    verdicts: dict[str, str] = field(default_factory=dict)
    patch: Patch | None = None
    damaged: bool = False
    """Whether more than kills happens to the run."""

    def run_reference(self) -> list[str]:
        """Run without a kill. Returns what is wrong even then."""
        self.run.reset()
        outcome = self.run.run_engine(1, patch=self.patch)
        if outcome != ENDED:
            return [f"a run without a kill {outcome}: {self.run.log()}"]
        self.points = [line.split(" ", 2)[2] for line in self.run.points.read_text().splitlines()]
        self.tree = self.tree or git(self.run.repository, "rev-parse", "fleet/r^{tree}")
        return self.violations(0)

    def violations(self, kills: int, pins: Mapping[str, int] | None = None) -> list[str]:
        return violations(
            Aftermath(self.run, kills, self.tree, self.before, dict(pins or {}), self.verdicts, self.damaged)
        )

    def kill_at(self, point: KillPoint) -> list[str]:
        """Kill once at this point and resume. Returns the violations."""
        return self.kill_repeatedly(iter([point]))

    def kill_repeatedly(self, points: Iterator[KillPoint]) -> list[str]:
        """Kill one engine at each of these points, until an engine ends by itself. Returns the violations."""
        self.run.reset()
        pins: dict[str, int] = {}
        for engine in range(1, MAX_ENGINES):
            outcome = self.run.run_engine(engine, kill_at=next(points, None), patch=self.patch)
            if outcome == ENDED:
                return self.violations(engine - 1, pins)
            if outcome != KILLED:
                return [f"engine {engine} {outcome}: {self.run.log()}"]
            for attempt in self.run.pinned_attempts():
                pins.setdefault(attempt, engine)
        return [f"I18: not ended after {MAX_ENGINES} engines"]

    def choose_points(self, share: int, names: Collection[str] = ()) -> list[KillPoint]:
        """The first, the last and every `share`-th crash point of each name, or of these names only."""
        counts = Counter(self.points)
        chosen = {
            name: {1, count, *range(1, count, share)} for name, count in counts.items() if name in (names or counts)
        }
        return [(name, number) for name, numbers in chosen.items() for number in sorted(numbers)]


@contextmanager
def open_trial(scenario: Scenario, *, lease: str = "auto") -> Iterator[Trial]:
    with temporary_folder() as folder:
        run = RepeatableRun(folder / "run", scenario, sandbox="bubblewrap", lease=lease)
        yield Trial(run, run.build())


@dataclass(frozen=True)
class Result:
    """A row of the table, and its violations."""

    figure: Figure
    details: tuple[str, ...]


def result(measure: str, where: str, note: str, found: list[tuple[str, str]]) -> Result:
    """The number of violations, of which none is wanted. `found` holds pairs of a place and a violation."""
    details = tuple(f"at {place}: {violation}" for place, violation in found[:SHOWN])
    return Result(Figure(f"violations, {measure}", where, len(found), wanted=0, note=note), details)


def kill_at_points(name: str, share: int, lease: str) -> Result:
    with open_trial(SCENARIOS[name], lease=lease) as trial:
        found, started = [("reference", violation) for violation in trial.run_reference()], time.perf_counter()
        chosen = trial.choose_points(share)
        for point in chosen:
            found += [(f"{point[0]}, {point[1]}", violation) for violation in trial.kill_at(point)]
        each = (time.perf_counter() - started) / max(1, len(chosen))
        note = f"of {len(trial.points)} points with {len(set(trial.points))} names, {each:.2f} s each"
        return result(f"a kill at each point: {name}, {lease}", f"{len(chosen)} points", note, found)


def kill_by_seeds(name: str, seeds: range, lease: str) -> Result:
    with open_trial(SCENARIOS[name], lease=lease) as trial:
        found, started, kills = (
            [("reference", violation) for violation in trial.run_reference()],
            time.perf_counter(),
            0,
        )
        for seed in seeds:
            chance = random.Random(f"{name} {seed}")  # noqa: S311 - it chooses points, not secrets
            width = chance.randint(NARROWEST, WIDEST)
            points = (("", chance.randint(1, width + engine // 10)) for engine in range(MAX_ENGINES))
            found += [(f"seed {seed}", violation) for violation in trial.kill_repeatedly(points)]
            kills += len({line.split(" ")[0] for line in trial.run.points.read_text().splitlines()}) - 1
        each = (time.perf_counter() - started) / max(1, len(seeds))
        measure, note = f"killed again and again: {name}, {lease}", f"{kills} kills, {each:.2f} s each"
        return result(measure, f"{len(seeds)} seeds", note, found)


def main() -> int:
    parser = command_line("chaos.kill", __doc__)
    parser.add_argument("mode", choices=("points", "seeds"))
    add_names(parser, "SCENARIO", SCENARIOS)
    parser.add_argument("--share", type=int, metavar="N", default=1, help="kill at every N-th point of each name (1)")
    parser.add_argument("--seeds", type=int, metavar="N", default=50, help="N seeds over all scenarios (50)")
    parser.add_argument("--first", type=int, metavar="SEED", default=0, help="the first seed (0)")
    parser.add_argument("--lease", choices=("auto", "pool"), default="auto", help="how worktrees are leased")
    add_jobs(parser, 1)
    args = parser.parse_args()
    table, names = Table("invariants after SIGKILL"), args.names or list(SCENARIOS)
    with forked_processes(args.jobs) as processes:
        if args.mode == "points":
            results = [processes.submit(kill_at_points, name, args.share, args.lease) for name in names]
        else:
            results = [
                processes.submit(
                    kill_by_seeds,
                    name,
                    range(args.first + place, args.first + args.seeds, len(names)),
                    args.lease,
                )
                for place, name in enumerate(names)
            ]
        for future in results:
            row = future.result()
            table.add(row.figure, details=row.details)
    return table.finish()


if __name__ == "__main__":
    exit_with(main)
