"""Kills a run at every point, or again and again at points that a seed chooses, resumes it, and looks at what is left.

    python -m tests.chaos.kill points [SCENARIO ...] [--share N]
    python -m tests.chaos.kill seeds [SCENARIO ...] --seeds N [--first N] [--jobs N]

Real git, real boxes, a real journal; only the minds are scripted. A reference run counts the points and keeps the tree
it ends with. `--share N` takes every N-th point of each name, and always the first and the last. A process that was
killed leaves what the kernel has: a power cut, which may lose that, is not shown by this.
"""

import argparse
import os
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from tests.chaos.invariants import Aftermath, violations
from tests.chaos.room import ENDED, KILLED, At, Patch, Room, in_memory
from tests.chaos.scenarios import SCENARIOS, Scenario
from tests.worktrees.conftest import git

MOST_LIVES = 150
NARROWEST, WIDEST = 60, 400  # points that a life of a seed may reach before it is killed, at most


@dataclass
class Stage:
    """A scenario, its reference run, and what was found."""

    room: Room
    before: dict[str, str]
    points: list[str] = field(default_factory=list)
    tree: str = ""
    verdicts: dict[str, str] = field(default_factory=dict)
    patch: Patch | None = None
    damaged: bool = False
    """Whether more is done to it than a kill."""

    def refer(self) -> list[str]:
        """The run that nobody kills; what is wrong with it already."""
        self.room.reset()
        how = self.room.live(1, patch=self.patch)
        if how != ENDED:
            return [f"a run without a kill is {how}: {self.room.log()}"]
        self.points = [line.split(" ", 2)[2] for line in self.room.points.read_text().splitlines()]
        self.tree = self.tree or git(self.room.repository, "rev-parse", "fleet/r^{tree}")
        return self.look(0)

    def look(self, kills: int, pins: Mapping[str, int] | None = None) -> list[str]:
        return violations(
            Aftermath(self.room, kills, self.tree, self.before, dict(pins or {}), self.verdicts, self.damaged)
        )

    def killed_at(self, point: At) -> list[str]:
        """Killed once at this point, and resumed."""
        return self.lived(iter([point]))

    def lived(self, kills: Iterator[At]) -> list[str]:
        """Killed at each of these points, one a life, until a life gets to its end."""
        self.room.reset()
        pins: dict[str, int] = {}
        for life in range(1, MOST_LIVES):
            how = self.room.live(life, kill_at=next(kills, None), patch=self.patch)
            if how == ENDED:
                return self.look(life - 1, pins)
            if how != KILLED:
                return [f"life {life} is {how}: {self.room.log()}"]
            for ref in self.room.attempts():
                pins.setdefault(ref, life)
        return [f"I18: no end in {MOST_LIVES} lives"]

    def chosen(self, share: int, names: Collection[str] = ()) -> list[At]:
        """Points to kill at: of each name, or of these, the first, the last and every `share`-th."""
        counts = Counter(self.points)
        picked = {name: {1, many, *range(1, many, share)} for name, many in counts.items() if name in (names or counts)}
        return [(name, number) for name, numbers in picked.items() for number in sorted(numbers)]


@contextmanager
def staged(scenario: Scenario, *, lease: str = "auto") -> Iterator[Stage]:
    with in_memory("kill-") as at:
        room = Room(at / "room", scenario, sandbox="bubblewrap", lease=lease)
        yield Stage(room, room.build())


def every_point(scenario: Scenario, share: int, lease: str) -> int:
    with staged(scenario, lease=lease) as stage:
        bad, began = [("reference", wrong) for wrong in stage.refer()], time.perf_counter()
        chosen = stage.chosen(share)
        for point in chosen:
            bad += [(f"{point[0]}, {point[1]}", wrong) for wrong in stage.killed_at(point)]
        each = (time.perf_counter() - began) / max(1, len(chosen))
        told = f"{len(chosen)} of {len(stage.points)} points, {len(set(stage.points))} names"
        return tell(f"kill at each point: {scenario.name}, {lease}", told, each, bad)


def many_seeds(scenario: Scenario, seeds: range, lease: str) -> int:
    with staged(scenario, lease=lease) as stage:
        bad, began, kills = [("reference", wrong) for wrong in stage.refer()], time.perf_counter(), 0
        for seed in seeds:
            chance = random.Random(f"{scenario.name} {seed}")  # noqa: S311 - which points, not what is secret
            width = chance.randint(NARROWEST, WIDEST)
            found = stage.lived(("", chance.randint(1, width + life // 10)) for life in range(MOST_LIVES))
            kills += len({line.split(" ")[0] for line in stage.room.points.read_text().splitlines()}) - 1
            bad += [(f"seed {seed}", wrong) for wrong in found]
        each = (time.perf_counter() - began) / max(1, len(seeds))
        return tell(
            f"killed again and again: {scenario.name}, {lease}", f"{len(seeds)} seeds, {kills} kills", each, bad
        )


def tell(what: str, told: str, each: float, bad: list[tuple[str, str]]) -> int:
    sys.stdout.write(f"{what}: {told}, {len(bad)} violations, {each:.2f} s each\n")
    for where, wrong in bad[:20]:
        sys.stdout.write(f"  at {where}: {wrong}\n")
    sys.stdout.flush()
    return len(bad)


def side_by_side(tasks: Sequence[Callable[[], int]], jobs: int) -> int:
    """Carry out each in a process of its own, so many at a time; how many went wrong."""
    bad, under_way = 0, set[int]()
    for task in tasks:
        if len(under_way) >= jobs:
            bad += _one_ends(under_way)
        pid = os.fork()
        if pid == 0:
            code = 2
            try:
                code = 1 if task() else 0
            except BaseException:  # noqa: BLE001 - the parent is told by the exit code
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        under_way.add(pid)
    while under_way:
        bad += _one_ends(under_way)
    return bad


def _one_ends(under_way: set[int]) -> int:
    pid, status = os.wait()
    under_way.discard(pid)
    return int(status != 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("how", choices=("points", "seeds"))
    parser.add_argument("scenarios", nargs="*", default=[], metavar="SCENARIO", help=", ".join(SCENARIOS))
    parser.add_argument("--share", type=int, default=1, help="kill at every N-th point of each name (default: each)")
    parser.add_argument("--seeds", type=int, default=50, help="seeds over all scenarios (default: 50)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--lease", choices=("auto", "pool"), default="auto", help="how worktrees are leased")
    parser.add_argument("--jobs", type=int, default=1, help="scenarios side by side (default: 1)")
    given = parser.parse_args()
    names = given.scenarios or list(SCENARIOS)
    tasks: list[Callable[[], int]] = []
    for place, name in enumerate(names):
        if given.how == "points":
            tasks.append(partial(every_point, SCENARIOS[name], given.share, given.lease))
        else:
            many = range(given.first + place, given.first + given.seeds, len(names))
            tasks.append(partial(many_seeds, SCENARIOS[name], many, given.lease))
    sys.exit(1 if side_by_side(tasks, given.jobs) else 0)


if __name__ == "__main__":
    main()
