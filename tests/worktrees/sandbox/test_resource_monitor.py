"""The processes of a box are limited together, and a command within its limits is not disturbed."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
from anyio import fail_after

from fleet.ports.agents import CommandResult
from tests.worktrees.conftest import OpenBench, make_repository, python_shown
from worktrees.base.settings import MIB, BoxLimits, LeaseKind
from worktrees.sandbox.resource_monitor import ResourceMonitor

GREEDY = {
    "memory": ("python -c 'x = bytearray(300 << 20); import time; time.sleep(60)'", "used more than 100 MiB of memory"),
    "memory of many": (
        "for i in 1 2 3 4; do python -c 'x = bytearray(40 << 20); import time; time.sleep(60)' & done; wait",
        "used more than 100 MiB of memory",
    ),
    "processes": ("for i in $(seq 300); do sleep 60 & done; wait", "used more than 64 processes"),
    "threads": (
        "python -c 'import threading as t; [t.Thread(target=t.Event().wait, args=(60,)).start() for _ in range(99)]'",
        "used more than 64 processes",
    ),
    "disk": ("for i in $(seq 60); do head -c 1M /dev/zero > f$i; done; sleep 60", "used more than 20 MiB on disk"),
    "disk below git": (
        "for i in $(seq 60); do head -c 1M /dev/zero > /fleet/git/f$i; done; sleep 60",
        "used more than 20 MiB on disk",
    ),
    "files": ("mkdir many && cd many && seq 3000 | xargs touch; sleep 60", "created more than 2000 files"),
}
HELD_BY_THE_KERNEL = {"processes": ["temporarily unavailable"], "threads": ["can't start new thread"]}
"""The messages of the kernel's own limit, which applies to every user but root."""
SMALL = BoxLimits(processes=64, memory_bytes=100 * MIB, disk_bytes=20 * MIB, disk_files=2000, free_bytes=0)


@pytest.fixture(params=["overlay", pytest.param("pool", marks=pytest.mark.thorough)])
def lease_kind(request: pytest.FixtureRequest) -> LeaseKind | Literal["auto"]:
    return request.param  # type: ignore[no-any-return]


async def run(open_bench: OpenBench, script: str, limits: BoxLimits, at: Path | None = None) -> CommandResult:
    changes = {"read_only": python_shown(), "path": (Path(sys.prefix, "bin"),), "limits": limits}
    async with open_bench(at, **changes) as bench, bench.worktrees.lease(bench.base) as lease:
        result = await lease.workspace.run(f"sleep 0.5; {script}", timeout_s=50)
        assert (await lease.workspace.run("echo on", timeout_s=20)).output == "on\n"
    return result


@pytest.mark.parametrize("greed", GREEDY)
async def test_a_greedy_command_is_ended_and_its_output_says_why(open_bench: OpenBench, greed: str) -> None:
    script, says = GREEDY[greed]
    result = await run(open_bench, script, SMALL)
    refused = greed in HELD_BY_THE_KERNEL and any(words in result.output for words in HELD_BY_THE_KERNEL[greed])
    assert refused or f"[ended by the sandbox: it {says}]" in result.output, result
    assert refused or (result.exit_code, result.timed_out) == (137, False)


async def test_memory_that_forked_processes_share_is_counted_once(open_bench: OpenBench) -> None:
    script = "python -c 'import os, time; x = bytearray(60 << 20); [os.fork() for _ in range(3)]; time.sleep(1)'"
    assert (await run(open_bench, script, SMALL)).exit_code == 0


async def test_a_full_disk_ends_what_writes_to_it(open_bench: OpenBench) -> None:
    result = await run(open_bench, "sleep 60", replace(SMALL, free_bytes=1 << 60))
    assert "of disk space is free]" in result.output


async def test_the_size_of_the_repository_itself_does_not_count(open_bench: OpenBench, tmp_path: Path) -> None:
    large = make_repository(tmp_path / "large", {f"{number}.txt": "x" for number in range(200)})
    script = "mkdir many; seq -f many/%g 40 | xargs touch; sleep 3; echo done"
    result = await run(open_bench, script, replace(SMALL, disk_files=100), large)
    assert result.output == "done\n"


async def test_a_box_that_takes_long_to_make_is_monitored_too(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as box:  # noqa: ASYNC220 - it starts at once
        pids = iter([None, None, box.pid])
        monitor = ResourceMonitor(replace(SMALL, free_bytes=1 << 60), lambda: next(pids), (tmp_path,), False)
        with fail_after(20):
            await monitor.watch()
    assert "of disk space is free" in monitor.verdict
