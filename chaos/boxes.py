"""Kills the engine while boxes run, and counts the processes that outlive it.

    python -m chaos.boxes boxes --many 100      a hundred boxes whose commands never end, when the engine is killed
    python -m chaos.boxes window --times 100    a kill between the start of a box and its command, in each box in turn

`boxes` resumes the run and counts the dead engine's processes until the new engine leases its first worktree. `window`
resumes the run to its end and checks every invariant.
"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from chaos.kill import open_trial, result
from chaos.repeatable_run import LEASED, RepeatableRun, processes_of
from chaos.scenarios import PLAIN, AttemptScript, Scenario, subtask
from fleet.ports.agents import Workspace
from scripts.frame import Figure, Table, command_line, exit_with, temporary_folder

BOXES, KILLS = 100, 100
TIMEOUT_S = 300.0
POLL_S = 0.02
STARTED = "a command is started, and not yet waited for"
"""The crash point between the start of a box and the start of its command."""
CLEAN_AFTER_S = 2.0


# ---- many boxes when the engine is killed ----------------------------------------------------------------------------


@dataclass(frozen=True)
class NeverEnding(Scenario):
    """Workers whose commands never end and ignore signals, with a child in a separate session."""

    async def prepare(self, workspace: Workspace) -> None:
        await workspace.run("trap '' TERM HUP INT; (setsid sleep 86400 &) ; sleep 86400", timeout_s=86_400)


@dataclass(frozen=True)
class Orphans:
    """Counts of the dead engine's processes."""

    before_kill: int
    """Shells of workers and their children before the kill."""
    after_kill: int
    at_first_lease: int
    gone_after_s: float
    """From the start of the new engine until none was left."""
    later: int
    """`CLEAN_AFTER_S` after the start of the new engine."""


def count_orphans(boxes: int) -> Orphans:
    """Kill an engine while all sandboxes are busy, then another engine at its first lease."""
    plan = tuple(subtask(f"s{number}", run="test -e never") for number in range(boxes))
    with temporary_folder() as folder:
        scenario = NeverEnding("never-ending", plan, {"": (AttemptScript(),)})
        run = RepeatableRun(folder / "run", scenario, sandbox="bubblewrap", workers=boxes)
        run.build()
        with killed_at_the_end(run.start_engine(1)) as first:
            wait_for_boxes(run, first, boxes)
            before = len(processes_of({first}))
            os.kill(first, signal.SIGKILL)
            os.waitpid(first, 0)
            after = len(processes_of({first}))
        started = time.monotonic()
        with killed_at_the_end(run.start_engine(2, kill_at=(LEASED, 1))) as second:
            gone_after_s = later = None
            while gone_after_s is None or later is None:
                count, elapsed = len(processes_of({first})), time.monotonic() - started
                gone_after_s = elapsed if gone_after_s is None and not count else gone_after_s
                later = count if later is None and elapsed >= CLEAN_AFTER_S else later
                time.sleep(POLL_S)
            os.waitpid(second, 0)
        lines = [line.split() for line in run.orphans.read_text().splitlines()]
        [at_first_lease] = [int(count) for engine, count in lines if engine == "2"]
        return Orphans(before, after, at_first_lease, gone_after_s, later)


@contextmanager
def killed_at_the_end(pid: int) -> Iterator[int]:
    """Leave no engine and none of its boxes behind, whatever fails in the block."""
    try:
        yield pid
    finally:
        for process in (pid, *processes_of({pid})):
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                continue


def wait_for_boxes(run: RepeatableRun, pid: int, boxes: int) -> None:
    """Wait until a command sleeps in each box."""
    deadline = time.monotonic() + TIMEOUT_S
    while sum(_sleeps(process) for process in processes_of({pid})) < 2 * boxes:
        if time.monotonic() > deadline or os.waitpid(pid, os.WNOHANG)[0]:
            raise RuntimeError(f"not all boxes started: {run.log()}")
        time.sleep(POLL_S * 5)


def _sleeps(pid: int) -> bool:
    try:
        return Path("/proc", str(pid), "comm").read_bytes() == b"sleep\n"
    except OSError:
        return False


def orphan_figures(boxes: int) -> list[Figure]:
    orphans = count_orphans(boxes)
    where, note = (
        f"{boxes} boxes",
        f"{orphans.after_kill} right after the kill, gone after {orphans.gone_after_s:.2f} s",
    )
    first_lease = "processes of a dead engine, at the first lease of the next"
    later = f"processes of a dead engine, {CLEAN_AFTER_S:g} s after the next starts"
    return [
        Figure("processes in boxes when the engine is killed", where, orphans.before_kill, wanted=boxes, at_least=True),
        Figure(first_lease, where, orphans.at_first_lease, wanted=0),
        Figure(later, where, orphans.later, wanted=0, note=note),
    ]


# ---- a kill while a box starts ---------------------------------------------------------------------------------------


def kill_in_window(times: int) -> list[tuple[str, str]]:
    """Kill between the start of a box and its command, in each box of the run in turn. Returns the violations."""
    with open_trial(PLAIN) as trial:
        found = [("reference", violation) for violation in trial.run_reference()]
        boxes = trial.points.count(STARTED)
        for number in range(times):
            box = number % boxes + 1
            found += [(f"box {box} of {boxes}", violation) for violation in trial.kill_at((STARTED, box))]
    return found


def main() -> int:
    parser = command_line("chaos.boxes", __doc__)
    parser.add_argument("mode", choices=("boxes", "window"))
    parser.add_argument("--many", type=int, metavar="N", default=BOXES, help=f"N boxes ({BOXES})")
    parser.add_argument("--times", type=int, metavar="N", default=KILLS, help=f"N kills ({KILLS})")
    args = parser.parse_args()
    table = Table("boxes when the engine is killed")
    if args.mode == "boxes":
        table.add(*orphan_figures(args.many))
    else:
        row = result("killed when a box was started", f"{args.times} kills", "", kill_in_window(args.times))
        table.add(row.figure, details=row.details)
    return table.finish()


if __name__ == "__main__":
    exit_with(main)
