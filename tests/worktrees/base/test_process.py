"""Children: their output, their time, and what is left of them."""

import os
import socket
import subprocess
from functools import partial
from pathlib import Path
from time import monotonic, sleep

import anyio
import pytest
from anyio import CapacityLimiter, create_task_group, fail_after, move_on_after

from fleet.ports.worktrees import EffectError
from worktrees.base.process import GATE, GO, READY, REFUSED, Finished, Launch, run

ENV = {"PATH": os.defpath}


async def shell(script: str, *, timeout_s: float = 20, cap: int = 10_000, data: bytes = b"") -> Finished:
    return await run(Launch(("sh", "-c", script), ENV, input=data, merged=True), timeout_s=timeout_s, cap=cap)


def is_alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] != "Z"


def has_died(pid: int) -> bool:
    """Whether a process that was killed has died; the signal takes a moment to arrive."""
    until = monotonic() + 20
    while is_alive(pid) and monotonic() < until:
        sleep(0.005)
    return not is_alive(pid)


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


async def test_a_child_that_ignores_sigterm_is_killed_with_its_whole_group(tmp_path: Path) -> None:
    script = f"trap '' TERM HUP INT; sleep 600 & echo $! > {tmp_path}/pid; wait"
    done = await shell(script, timeout_s=0.5)
    assert done.timed_out
    assert has_died(int((tmp_path / "pid").read_text(encoding="utf-8")))


async def test_a_background_child_that_keeps_the_pipe_open_does_not_delay_the_result() -> None:
    began = monotonic()
    done = await shell("sleep 600 & echo done")
    assert done.stdout == b"done\n"
    assert monotonic() - began < 60, "it would have been ten minutes"


async def test_cancelling_leaves_no_process(tmp_path: Path) -> None:
    with move_on_after(0.5):
        await shell(f"sleep 600 & echo $! > {tmp_path}/pid; wait")
    assert has_died(int((tmp_path / "pid").read_text(encoding="utf-8")))


async def test_a_program_that_is_missing_is_a_failure_of_the_infrastructure() -> None:
    with pytest.raises(EffectError) as caught:
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


@pytest.mark.parametrize("word", [b"", b"g", b"no\n", b"go on\n"])
def test_a_gated_command_starts_only_at_the_word(tmp_path: Path, word: bytes) -> None:
    ours, theirs = socket.socketpair()
    argv = ("sh", "-c", GATE, "gate", "/dev/null", "touch", str(tmp_path / "ran"))
    with ours, subprocess.Popen(argv, stdin=theirs.fileno()) as gated:
        theirs.close()
        assert ours.recv(1) == READY
        ours.sendall(word)
        ours.shutdown(socket.SHUT_RDWR)
        assert gated.wait() == REFUSED
    assert not (tmp_path / "ran").exists()


async def test_a_gated_command_gets_its_input_and_not_the_gate(tmp_path: Path) -> None:
    (tmp_path / "input").write_bytes(GO * 3)
    script = "cat; readlink /proc/self/fd/0; ls /proc/self/fd | wc -l"
    argv = ("sh", "-c", GATE, "gate", str(tmp_path / "input"), "sh", "-c", script)
    done = await run(Launch(argv, ENV, merged=True, gated=True), timeout_s=20, cap=1000)
    assert done.stdout.decode() == f"go\ngo\ngo\n{tmp_path}/input\n4\n"


async def test_a_gated_command_gets_ready_without_the_limiter_and_runs_with_it(tmp_path: Path) -> None:
    limiter = CapacityLimiter(1)
    argv = ("sh", "-c", f"touch {tmp_path}/ready; {GATE}", "gate", "/dev/null", "touch", str(tmp_path / "ran"))
    await limiter.acquire_on_behalf_of("another")
    async with create_task_group() as group:
        group.start_soon(partial(run, timeout_s=20, cap=100), Launch(argv, ENV, gated=True, limiter=limiter))
        with fail_after(20):
            while not limiter.statistics().tasks_waiting:  # noqa: ASYNC110 - another process is waited for
                await anyio.sleep(0.005)
        assert (tmp_path / "ready").exists()
        assert not (tmp_path / "ran").exists()
        limiter.release_on_behalf_of("another")
    assert (tmp_path / "ran").exists()
    assert limiter.borrowed_tokens == 0


async def test_a_gated_command_that_never_gets_to_its_gate_is_reaped() -> None:
    done = await run(Launch(("sh", "-c", "exit 9"), ENV, gated=True), timeout_s=20, cap=100)
    assert done.exit_code == 9
