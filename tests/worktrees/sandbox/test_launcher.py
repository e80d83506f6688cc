"""Boxes that the launcher starts: they are the same as without it, and still start when it was killed."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from time import monotonic

import pytest
from anyio import create_task_group, sleep

from tests.worktrees.conftest import Bench, product_settings
from worktrees.leases.leases import WorktreeLease
from worktrees.sandbox import launcher_main
from worktrees.sandbox.box import Box, Place
from worktrees.sandbox.launcher import Launcher

PATIENCE_S = 300.0
SHOW = "pwd; id; env | grep -v FLEET_BOX | sort; ls /proc/self/fd; cat README.md; ls / /dev; ulimit -a; exit 7"
ALONE = "grep -E '^(Sig|Cap|NoNewPrivs|Seccomp:|NSsid|NSpgid)' /proc/self/status; wc -l < /proc/self/mountinfo"


def launchers() -> set[int]:
    """Our launcher processes."""
    name = os.fsencode(launcher_main.__file__)
    return {pid for pid in children() if name in Path(f"/proc/{pid}/cmdline").read_bytes()}


async def run(box: Box, place: Place, script: str) -> tuple[int, str]:
    done = await box.run(place, box.shell(script), timeout_s=60, cap=100_000)
    return done.exit_code, done.stdout.decode()


@pytest.fixture
def bare(tmp_path: Path) -> Place:
    (tmp_path / "tree").mkdir()
    return Place(tmp_path / "tree", tmp_path / "scratch", "forked")


@pytest.mark.parametrize("script", [SHOW, ALONE], ids=["what it sees", "what it may"])
async def test_a_box_is_the_same_with_and_without_the_launcher(bench: Bench, script: str) -> None:
    async with bench.worktrees.lease(bench.base) as lease:
        assert isinstance(lease, WorktreeLease)
        launched = await run(bench.worktrees.leases.box, lease.workspace.place, script)
        assert launchers()
        assert launched == await run(Box(bench.worktrees.leases.box.settings), lease.workspace.place, script)


async def test_each_of_many_has_its_own_streams_and_its_own_exit_code(bench: Bench) -> None:
    results: dict[int, tuple[int, str]] = {}

    async def work(number: int) -> None:
        async with bench.worktrees.lease(bench.base) as lease:
            done = await lease.workspace.run(f"echo {number}; exit {number}", timeout_s=60)
            results[number] = done.exit_code, done.output

    async with create_task_group() as tasks:
        for number in range(12):
            tasks.start_soon(work, number)
    assert results == {number: (number, f"{number}\n") for number in range(12)}


async def test_commands_still_start_when_the_launcher_was_killed(bench: Bench) -> None:
    async with bench.worktrees.lease(bench.base) as lease:
        for _ in range(2):
            assert (await lease.workspace.run("echo on", timeout_s=60)).output == "on\n"
            for pid in launchers():
                os.kill(pid, signal.SIGKILL)
        assert not launchers()


async def test_a_launcher_that_stands_still_is_killed_and_another_one_starts(bench: Bench) -> None:
    async with bench.worktrees.lease(bench.base) as lease:
        assert isinstance(lease, WorktreeLease)
        before, place = launchers(), lease.workspace.place
        with closing(Launcher(answer_s=1.0)) as launcher:
            box = Box(bench.worktrees.leases.box.settings, starter=launcher)
            assert await run(box, place, "echo on") == (0, "on\n")
            [first] = launchers() - before
            os.kill(first, signal.SIGSTOP)
            assert await run(box, place, "echo on") == (0, "on\n")
            assert launchers() == before, "it was killed, and the command started without one"
            assert await run(box, place, "echo on") == (0, "on\n")
            assert len(launchers() - before) == 1


async def test_the_launcher_runs_only_where_there_is_something_to_prepare(tmp_path: Path, bare: Place) -> None:
    """Without an overlay that is closing the devices, which only root of the host owns."""
    with closing(Launcher()) as launcher:
        box = Box(product_settings(tmp_path), starter=launcher)
        assert await run(box, bare, "exit 3") == (3, "")
        assert len(launchers()) == (os.geteuid() == 0)
    assert not launchers()


async def test_cancelling_leaves_no_command_behind(tmp_path: Path, bare: Place) -> None:
    before = children()
    with closing(Launcher()) as launcher:
        box = Box(product_settings(tmp_path), starter=launcher)
        for delay in range(10):
            async with create_task_group() as tasks:
                tasks.start_soon(run, box, bare, "sleep 2147481")
                await sleep(delay * 0.004)
                tasks.cancel_scope.cancel()
        assert _still_running("2147481") == []
        assert children() - before == launchers()


def _still_running(word: str) -> list[bytes]:
    """The commands that contain a word, once they had time to end."""
    until = monotonic() + PATIENCE_S
    while (commands := [line for line in _command_lines() if word.encode() in line]) and monotonic() < until:
        time.sleep(0.01)
    return commands


def _command_lines() -> Iterator[bytes]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield path.read_bytes()


def children() -> set[int]:
    return set(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))
