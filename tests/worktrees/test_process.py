"""Children: their output, their time, and what is left of them."""

import os
from pathlib import Path
from time import monotonic

import pytest
from anyio import create_task_group, move_on_after

from fleet.ports import Broken
from worktrees.process import Finished, Launch, run

ENV = {"PATH": os.defpath}


async def shell(script: str, *, timeout_s: float = 20, cap: int = 10_000, data: bytes = b"") -> Finished:
    return await run(Launch(("sh", "-c", script), ENV, input=data, merged=True), timeout_s=timeout_s, cap=cap)


def alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] != "Z"


async def test_both_streams_come_in_order_with_the_exit_code() -> None:
    done = await shell("echo one; echo two >&2; cat; exit 3", data=b"three\n")
    assert (done.exit_code, done.stdout, done.cut) == (3, b"one\ntwo\nthree\n", False)


async def test_a_flood_is_capped_in_its_middle_and_never_blocks_the_child() -> None:
    done = await shell("echo first; head -c 30000000 /dev/zero | tr '\\0' x; echo; echo last", cap=1000)
    assert done.exit_code == 0
    assert done.cut
    assert done.stdout.startswith(b"first\n")
    assert done.stdout.endswith(b"x\nlast\n")
    assert b"bytes left out" in done.stdout
    assert len(done.stdout) < 1200


async def test_who_ignores_being_asked_is_killed_with_the_whole_group(tmp_path: Path) -> None:
    script = f"trap '' TERM HUP INT; sleep 600 & echo $! > {tmp_path}/pid; wait"
    done = await shell(script, timeout_s=0.5)
    assert done.timed_out
    assert not alive(int((tmp_path / "pid").read_text(encoding="utf-8")))


async def test_a_background_child_that_keeps_the_pipe_open_holds_nobody_up() -> None:
    began = monotonic()
    done = await shell("sleep 600 & echo done")
    assert done.stdout == b"done\n"
    assert monotonic() - began < 60, "it would have been ten minutes"


async def test_cancelling_leaves_no_process(tmp_path: Path) -> None:
    with move_on_after(0.5):
        await shell(f"sleep 600 & echo $! > {tmp_path}/pid; wait")
    assert not alive(int((tmp_path / "pid").read_text(encoding="utf-8")))


async def test_a_program_that_is_missing_is_a_failure_of_the_infrastructure() -> None:
    with pytest.raises(Broken) as caught:
        await run(Launch(("no-such-program",), ENV), timeout_s=5, cap=100)
    assert caught.value.failure.kind == "infrastructure"


async def test_children_leak_no_descriptor_and_no_thread() -> None:
    await shell("true")
    before = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))  # noqa: PTH208 - counted, not walked
    async with create_task_group() as group:
        for _ in range(30):
            group.start_soon(shell, "echo hello")
    after = len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))  # noqa: PTH208 - counted, not walked
    assert after == before
