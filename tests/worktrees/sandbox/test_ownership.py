"""What is left of a box when its manager dies, and who may end it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

import pytest

from tests.worktrees.conftest import OpenBench
from worktrees.marks import MARK, Manager, end_orphans, manager_of, this_manager

MANAGER = Path(__file__).with_name("manager.py")
ROOT = Path(__file__).parents[2]
DELAYS_S = [number * 0.006 for number in range(16)]
PATIENCE_S = 20.0


@contextmanager
def manager(folder: Path, script: str, *, sandbox: str = "bubblewrap") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process of its own that runs `script` in a box, and the beginning of its mark."""
    for name in ("tree", "scratch"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, str(MANAGER), str(folder), sandbox, script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}) as one:
        assert one.stdout is not None
        try:
            yield one, one.stdout.readline().strip()
        finally:
            one.kill()


def marked(mark: str) -> list[int]:
    """The processes that carry a manager's mark."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"{MARK}={mark}".encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def wait_until_none(mark: str, command: bytes | None = None) -> list[object]:
    """What still is there at the end: marked processes, and commands that hold these bytes."""
    until, left = monotonic() + PATIENCE_S, list[object]()
    while (left := [*marked(mark), *(line for line in commands() if command and command in line)]) and (
        monotonic() < until
    ):
        sleep(0.01)
    return left


def wait_for(path: Path) -> None:
    until = monotonic() + PATIENCE_S
    while not path.exists() and monotonic() < until:
        sleep(0.005)
    assert path.exists()


@pytest.mark.parametrize("goes_first", [False, True], ids=["at any moment", "once it runs"])
def test_no_kill_of_the_manager_leaves_a_command_running(tmp_path: Path, *, goes_first: bool) -> None:
    hidden = "(setsid sleep 97531 &); trap '' TERM HUP INT; touch ran; sleep 97531"
    for number, delay in enumerate(DELAYS_S):
        with manager(tmp_path / str(number), hidden) as (process, mark):
            if goes_first:
                wait_for(tmp_path / str(number) / "tree" / "ran")
            sleep(delay)
            process.kill()
            process.wait()
            assert wait_until_none(mark, b"97531") == [], f"killed after {delay * 1000:g} ms"


def commands() -> Iterator[bytes]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(FileNotFoundError, ProcessLookupError):
            yield path.read_bytes()


def leave_orphans(folder: Path) -> str:
    """The mark of a manager that is dead while what it started lives. Other tests end such, too: try again."""
    for number in range(10):
        at = folder / f"dead-{number}"
        with manager(at, "touch ran; setsid sleep 97534 & sleep 97535", sandbox="none") as (dead, mark):
            wait_for(at / "tree" / "ran")
            dead.kill()
            dead.wait()
        if marked(mark):
            return mark
    raise AssertionError("without a box nothing should end them")


def test_what_outlived_a_dead_manager_is_ended_and_nobody_else(tmp_path: Path) -> None:
    ours, elsewhere = this_manager(), Manager(1, 999_999, 1)
    marks = ("not-a-mark", ours.mark("r1/1"), elsewhere.mark("r1/1"))
    bystanders = [subprocess.Popen(["sleep", "60"], env={MARK: mark}) for mark in marks]
    try:
        with manager(tmp_path / "live", "touch ran; sleep 97535", sandbox="none") as (_, live_mark):
            wait_for(tmp_path / "live" / "tree" / "ran")
            dead_mark = leave_orphans(tmp_path)
            end_orphans()
            assert wait_until_none(dead_mark) == []
            assert marked(live_mark)
        assert [one.poll() for one in bystanders] == [None, None, None]
    finally:
        for one in bystanders:
            one.kill()
            one.wait()
        end_orphans()


async def test_opening_a_workshop_ends_what_a_dead_manager_left(tmp_path: Path, open_bench: OpenBench) -> None:
    mark = leave_orphans(tmp_path)
    async with open_bench():
        assert wait_until_none(mark) == []


@pytest.mark.parametrize("mark", ["", "1.2", "1.2.3", "-1.2.3/x", "1.2.3.4/x", "x1.2.3/x", f"{'9' * 30}.1.1/x"])
def test_what_is_no_mark_names_nobody(mark: str) -> None:
    with subprocess.Popen(["sleep", "60"], env={MARK: mark, "OTHER": f"{MARK}=1.2.3/x"}) as process:
        try:
            assert manager_of(process.pid) is None
        finally:
            process.kill()
