"""Processes of a box whose manager died, and which of them are ended."""

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

import pytest

from tests.worktrees.conftest import OpenBench, product_settings
from worktrees.sandbox.overlay_mount import TAG, Manager, end_orphans, manager_of, this_manager

MANAGER = Path(__file__).parents[1] / "manager.py"
ROOT = Path(__file__).parents[3]
DELAYS_S = [number * 0.006 for number in range(16)]
FEW = DELAYS_S[::5]
PATIENCE_S = 300.0


@contextmanager
def manager(folder: Path, script: str, *, sandbox: str = "bubblewrap") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process of its own that runs `script` in a box, and the beginning of its tag."""
    for name in ("tree", "scratch"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "settings").write_bytes(pickle.dumps(product_settings(folder, sandbox=sandbox)))
    argv = [sys.executable, str(MANAGER), str(folder), script]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def tagged(tag: str) -> list[int]:
    """The processes that carry a manager's tag."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"{TAG}={tag}".encode() in path.read_bytes():
                pids.append(int(path.parent.name))
    return pids


def wait_until_none(tag: str, command: bytes | None = None) -> list[object]:
    """Wait until no process has the tag and no command contains these bytes. Returns those that still exist."""
    until = monotonic() + PATIENCE_S
    while (remaining := [*tagged(tag), *(line for line in commands() if command and command in line)]) and (
        monotonic() < until
    ):
        sleep(0.01)
    return remaining


def wait_for(path: Path) -> None:
    until = monotonic() + PATIENCE_S
    while not path.exists() and monotonic() < until:
        sleep(0.005)
    assert path.exists()


@pytest.mark.parametrize("delays", [FEW, pytest.param(DELAYS_S, marks=pytest.mark.thorough)], ids=["few", "all"])
@pytest.mark.parametrize("goes_first", [False, True], ids=["at any moment", "once it runs"])
def test_no_kill_of_the_manager_leaves_a_command_running(
    tmp_path: Path, *, goes_first: bool, delays: list[float]
) -> None:
    hidden = "(setsid sleep 97531 &); trap '' TERM HUP INT; touch ran; sleep 97531"
    for number, delay in enumerate(delays):
        with manager(tmp_path / str(number), hidden) as (process, tag):
            if goes_first:
                wait_for(tmp_path / str(number) / "tree" / "ran")
            sleep(delay)
            process.kill()
            process.wait()
            assert wait_until_none(tag, b"97531") == [], f"killed after {delay * 1000:g} ms"


def commands() -> Iterator[bytes]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(FileNotFoundError, ProcessLookupError):
            yield path.read_bytes()


def leave_orphans(folder: Path) -> str:
    """The tag of a dead manager whose processes still run. Other tests end such processes, too, so it tries again."""
    for number in range(10):
        at = folder / f"dead-{number}"
        with manager(at, "touch ran; setsid sleep 97534 & sleep 97535", sandbox="none") as (dead, tag):
            wait_for(at / "tree" / "ran")
            dead.kill()
            dead.wait()
        if tagged(tag):
            return tag
    raise AssertionError("without a box nothing should end them")


def test_processes_of_a_dead_manager_are_ended_and_no_others(tmp_path: Path) -> None:
    ours, elsewhere = this_manager(), Manager(1, 999_999, 1)
    tags = ("not-a-tag", ours.tag("r1/1"), elsewhere.tag("r1/1"))
    bystanders = [subprocess.Popen(["sleep", "60"], env={TAG: tag}) for tag in tags]
    try:
        with manager(tmp_path / "live", "touch ran; sleep 97535", sandbox="none") as (_, live_tag):
            wait_for(tmp_path / "live" / "tree" / "ran")
            dead_tag = leave_orphans(tmp_path)
            end_orphans()
            assert wait_until_none(dead_tag) == []
            assert tagged(live_tag)
        assert [process.poll() for process in bystanders] == [None, None, None]
    finally:
        for process in bystanders:
            process.kill()
            process.wait()
        end_orphans()


async def test_opening_worktrees_ends_the_processes_of_a_dead_manager(tmp_path: Path, open_bench: OpenBench) -> None:
    tag = leave_orphans(tmp_path)
    async with open_bench():
        assert wait_until_none(tag) == []


@pytest.mark.parametrize("tag", ["", "1.2", "1.2.3", "-1.2.3/x", "1.2.3.4/x", "x1.2.3/x", f"{'9' * 30}.1.1/x"])
def test_an_invalid_tag_names_no_manager(tag: str) -> None:
    with subprocess.Popen(["sleep", "60"], env={TAG: tag, "OTHER": f"{TAG}=1.2.3/x"}) as process:
        try:
            assert manager_of(process.pid) is None
        finally:
            process.kill()
