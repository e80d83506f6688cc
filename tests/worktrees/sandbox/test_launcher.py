"""Boxes that a process which stands ready starts: the same boxes, and none the less when that process is gone."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic

import pytest
from anyio import create_task_group, sleep

from tests.worktrees.conftest import Bench
from worktrees import forker
from worktrees.box import Box, Place
from worktrees.forks import forks
from worktrees.lease import OverlayLease
from worktrees.marks import this_manager
from worktrees.settings import HandSettings

PATIENCE_S = 20.0
SHOW = "pwd; id; env | grep -v FLEET_BOX | sort; ls /proc/self/fd; cat README.md; ls / /dev; ulimit -a; exit 7"
ALONE = "grep -E '^(Sig|Cap|NoNewPrivs|Seccomp:|NSsid|NSpgid)' /proc/self/status; wc -l < /proc/self/mountinfo"


def standing_ready() -> list[int]:
    """The processes of ours that start boxes."""
    name = os.fsencode(forker.__file__)
    return [pid for pid in children() if name in Path(f"/proc/{pid}/cmdline").read_bytes()]


async def said(box: Box, place: Place, script: str) -> tuple[int, str]:
    done = await box.run(place, box.shell(script), timeout_s=60, cap=100_000)
    return done.exit_code, done.stdout.decode()


@pytest.fixture
def bare(tmp_path: Path) -> Place:
    (tmp_path / "tree").mkdir()
    return Place(tmp_path / "tree", tmp_path / "scratch", "forked")


@pytest.mark.parametrize("script", [SHOW, ALONE], ids=["what it sees", "what it may"])
async def test_a_box_is_the_same_whoever_starts_it(bench: Bench, script: str) -> None:
    async with bench.hands.lease(bench.base) as lease:
        assert isinstance(lease, OverlayLease)
        ready = await said(bench.hands.box, lease.place, script)
        assert standing_ready() != []
        assert ready == await said(Box(bench.hands.box.settings), lease.place, script)


async def test_each_of_many_has_its_own_streams_and_its_own_end(bench: Bench) -> None:
    found: dict[int, tuple[int, str]] = {}

    async def run(number: int) -> None:
        async with bench.hands.lease(bench.base) as lease:
            done = await lease.desk.run(f"echo {number}; exit {number}", timeout_s=60)
            found[number] = done.exit_code, done.output

    async with create_task_group() as tasks:
        for number in range(12):
            tasks.start_soon(run, number)
    assert found == {number: (number, f"{number}\n") for number in range(12)}


async def test_commands_go_on_without_the_process_that_starts_them(bench: Bench) -> None:
    async with bench.hands.lease(bench.base) as lease:
        for _ in range(2):
            assert (await lease.desk.run("echo on", timeout_s=60)).output == "on\n"
            for pid in standing_ready():
                os.kill(pid, signal.SIGKILL)
        assert standing_ready() == []


async def test_the_process_is_there_only_where_there_is_something_to_prepare(tmp_path: Path, bare: Place) -> None:
    """Without an overlay that is closing the devices, which only root of the host owns."""
    with forks(this_manager()) as starter:
        box = Box(HandSettings(state_dir=tmp_path), starter=starter)
        assert await said(box, bare, "exit 3") == (3, "")
        assert len(standing_ready()) == (os.geteuid() == 0)
    assert standing_ready() == []


async def test_breaking_off_leaves_no_command_behind(tmp_path: Path, bare: Place) -> None:
    with forks(this_manager()) as starter:
        box = Box(HandSettings(state_dir=tmp_path), starter=starter)
        for delay in range(10):
            async with create_task_group() as tasks:
                tasks.start_soon(said, box, bare, "sleep 2147481")
                await sleep(delay * 0.004)
                tasks.cancel_scope.cancel()
        assert _left("2147481") == []
        assert children() == standing_ready()


def _left(word: str) -> list[bytes]:
    """The commands that hold a word, once they had time to end."""
    until = monotonic() + PATIENCE_S
    while (left := [line for line in _command_lines() if word.encode() in line]) and monotonic() < until:
        time.sleep(0.01)
    return left


def _command_lines() -> Iterator[bytes]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield path.read_bytes()


def children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
