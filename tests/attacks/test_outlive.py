"""Processes that live on: after their command, after its time limit, after a request to end."""

import os
import signal
import subprocess
from contextlib import suppress

import pytest

from tests.attacks.conftest import Arena, command_lines, running

FOREVER = "2147480"  # seconds that no other process sleeps
DAEMON = f"setsid sh -c 'echo $$ > pid; exec sleep {FOREVER}' </dev/null >/dev/null 2>&1 & until [ -s pid ]; do :; done"
TWICE = (
    f"(setsid sh -c '(sleep {FOREVER} & echo $! > pid) &' </dev/null >/dev/null 2>&1 &); until [ -s pid ]; do :; done"
)
HOLDER = f"setsid sleep {FOREVER} & echo on"
STUBBORN = "trap '' TERM INT HUP QUIT; echo ready; while :; do sleep 0.1; done"


def end(*pids: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("script", [DAEMON, TWICE], ids=["a session of its own", "forked twice"])
async def test_8_a_process_lives_on_after_its_command(arena: Arena, script: str) -> None:
    assert (await arena.without(script)).worked
    survivor = int((arena.tree / "pid").read_text())
    os.kill(survivor, 0)  # it exists
    end(survivor)
    (arena.tree / "pid").unlink()
    assert (await arena.within(script)).worked
    assert running("sleep", FOREVER) == []


def test_9_a_child_in_the_background_holds_the_output_of_a_plain_command_open() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(["sh", "-c", HOLDER], stdout=subprocess.PIPE, timeout=1, check=False)
    end(*running("sleep", FOREVER))


async def test_9_a_child_in_the_background_holds_nothing_open_in_the_box(arena: Arena) -> None:
    result = await arena.within(HOLDER)
    assert (result.output, result.timed_out, result.exit_code) == ("on\n", False, 0)
    assert running("sleep", FOREVER) == []


def test_10_a_process_does_not_end_when_it_is_asked_to() -> None:
    with subprocess.Popen(["sh", "-c", STUBBORN], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            process.send_signal(number)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.kill()


ENDLESS = {"10 deaf": STUBBORN, "11 stopped": f"kill -STOP $$; sleep {FOREVER}", "11 busy": "while :; do :; done"}


@pytest.mark.parametrize("script", ENDLESS.values(), ids=ENDLESS)
def test_10_11_a_command_never_ends(script: str) -> None:
    with subprocess.Popen(["sh", "-c", script], stdout=subprocess.DEVNULL, process_group=0) as unlimited:
        with pytest.raises(subprocess.TimeoutExpired):
            unlimited.wait(0.3)
        os.killpg(unlimited.pid, signal.SIGKILL)


@pytest.mark.parametrize("script", ENDLESS.values(), ids=ENDLESS)
async def test_10_11_a_command_that_never_ends_is_gone_at_its_limit(arena: Arena, script: str) -> None:
    limited = await arena.within(script, timeout_s=1)
    assert (limited.timed_out, limited.exit_code) == (True, 124)
    assert [pid for pid, line in command_lines() if script.encode() in line] == []
