"""`scripts/contained`: whatever a command started ends with it."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMIT_S = 300.0
LEAVES = """
(setsid sh -c 'echo $$ >one.new; mv one.new one; exec sleep 600' &)
(setsid setsid sh -c 'sleep 601 & echo $! >two.new; mv two.new two; exec sleep 602' &)
until [ -e one ] && [ -e two ]; do sleep 0.01; done
"""


def contained(script: str, folder: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        # who runs the tests may ignore the signal, as a shell does for what is in its background
        ["env", "--default-signal=INT", ROOT / "scripts/contained", "sh", "-c", script],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def left(folder: Path) -> list[int]:
    pids = [int((folder / name).read_text()) for name in ("one", "two")]
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_what_a_command_left_in_other_sessions_is_ended_and_its_exit_code_kept(tmp_path: Path) -> None:
    with contained(f"{LEAVES}exit 7", tmp_path) as process:
        _, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 7
    assert left(tmp_path) == []
    assert "ended 3 processes" in errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_so_does_a_command_that_is_interrupted(tmp_path: Path, number: signal.Signals) -> None:
    with contained(f"{LEAVES}echo ready; exec sleep 603", tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        if number is signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            process.send_signal(number)
        assert process.wait(LIMIT_S) == 128 + number
        process.communicate()
    assert left(tmp_path) == []


def test_a_command_that_leaves_nothing_is_not_commented_on(tmp_path: Path) -> None:
    with contained("echo fine", tmp_path) as process:
        assert process.communicate(timeout=LIMIT_S) == ("fine\n", "")
    assert process.returncode == 0
