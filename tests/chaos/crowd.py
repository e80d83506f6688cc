"""A hundred boxes at once when the engine is killed, and a kill in the moment between a box's start and its first word.

    python -m tests.chaos.crowd boxes [--many N]
    python -m tests.chaos.crowd window [--times N]

`boxes` kills the engine while each of a hundred workers runs a command that never ends, resumes it, and counts the
processes of the dead engine until the first work of the new one begins. `window` kills as soon as a box is started.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fleet.ports import Desk
from tests.chaos.kill import staged, tell
from tests.chaos.room import BEGINS, Room, in_memory, left_by
from tests.chaos.scenarios import PLAIN, Doing, Scenario, subtask

MANY, TIMES = 100, 100
PATIENCE_S = 300.0
LOOK_S = 0.02
WINDOW = "a command is started, and nobody waits for it"
AFTER_S = 2.0


@dataclass(frozen=True)
class Sleepy(Scenario):
    """Workers whose commands never end."""

    async def before(self, desk: Desk) -> None:
        await desk.run("trap '' TERM HUP INT; (setsid sleep 86400 &) ; sleep 86400", timeout_s=86_400)


def sleepy(many: int) -> Scenario:
    plan = tuple(subtask(f"s{number}", run="test -e never") for number in range(many))
    return Sleepy("sleepy", plan, {"": (Doing(),)})


@dataclass(frozen=True)
class Counted:
    """Processes of the dead engine."""

    boxes: int
    """Workers' shells and what they started, while it lived."""
    after_the_kill: int
    at_first_work: int
    after_s: float
    """From the beginning of the new engine until none was left."""
    later: int
    """Two seconds after its beginning."""


def boxes(many: int) -> Counted:
    """Two lives: one is killed with all boxes at work, the other at its first lease."""
    with in_memory("crowd-") as folder:
        room = Room(folder / "room", sleepy(many), sandbox="bubblewrap", workers=many)
        room.build()
        with killed_at_the_end(room.begin(1)) as pid:
            wait_for(room, pid, many)
            there = len(left_by({pid}))
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            after = len(left_by({pid}))
        began = time.monotonic()
        with killed_at_the_end(room.begin(2, kill_at=(BEGINS, 1))) as second:
            gone = later = None
            while gone is None or later is None:
                left, now = len(left_by({pid})), time.monotonic() - began
                gone = now if gone is None and not left else gone
                later = left if later is None and now >= AFTER_S else later
                time.sleep(LOOK_S)
            os.waitpid(second, 0)
        [(_, first)] = [line.split() for line in room.orphans.read_text().splitlines() if line.startswith("2 ")]
        return Counted(there, after, int(first), gone, later)


@contextmanager
def killed_at_the_end(pid: int) -> Iterator[int]:
    """Whatever a test finds, no engine and none of its boxes stays."""
    try:
        yield pid
    finally:
        for one in (pid, *left_by({pid})):
            try:
                os.kill(one, signal.SIGKILL)
            except ProcessLookupError:
                continue


def wait_for(room: Room, pid: int, many: int) -> None:
    """Until a command sleeps in each box."""
    until = time.monotonic() + PATIENCE_S
    while sum(_sleeps(one) for one in left_by({pid})) < 2 * many:
        if time.monotonic() > until or os.waitpid(pid, os.WNOHANG)[0]:
            raise RuntimeError(f"the boxes did not get there: {room.log()}")
        time.sleep(LOOK_S * 5)


def _sleeps(pid: int) -> bool:
    try:
        return Path("/proc", str(pid), "comm").read_bytes() == b"sleep\n"
    except OSError:
        return False


def window(times: int) -> list[tuple[str, str]]:
    """Killed in that moment of each box of a run in turn, and resumed: what does not hold."""
    bad = list[tuple[str, str]]()
    with staged(PLAIN) as stage:
        stage.refer()
        many = stage.points.count(WINDOW)
        for number in range(times):
            at = number % many + 1
            bad += [(f"box {at} of {many}", wrong) for wrong in stage.killed_at((WINDOW, at))]
    return bad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("how", choices=("boxes", "window"))
    parser.add_argument("--many", type=int, default=MANY, help=f"boxes (default: {MANY})")
    parser.add_argument("--times", type=int, default=TIMES, help=f"kills (default: {TIMES})")
    given = parser.parse_args()
    if given.how == "window":
        began, bad = time.perf_counter(), window(given.times)
        each = (time.perf_counter() - began) / given.times
        sys.exit(1 if tell("killed when a box was started", f"{given.times} kills", each, bad) else 0)
    found = boxes(given.many)
    sys.stdout.write(
        f"{given.many} boxes, {found.boxes} processes: {found.after_the_kill} left at once after the engine's kill -9; "
        f"none {found.after_s:.2f} s after the next began; {found.later} left {AFTER_S:g} s after it, "
        f"{found.at_first_work} when its first work began\n"
    )
    sys.exit(1 if found.later or found.at_first_work or found.boxes < given.many else 0)


if __name__ == "__main__":
    main()
