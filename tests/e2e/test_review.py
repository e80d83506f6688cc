"""On a terminal the plan is shown first, and nothing runs before a clear yes, typed there or given from elsewhere."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

import pytest

from tests.e2e.conftest import Serve
from tests.e2e.stage import Stage, script, subtask, wait_for

PATIENCE_S = 60
QUESTION = "Type yes or no"


@dataclass
class Terminal:
    """A `fleet` that thinks a person sits in front of it."""

    process: subprocess.Popen[bytes]
    master: int
    seen: bytearray = field(default_factory=bytearray)

    def read(self) -> None:
        with suppress(OSError):  # the other end was closed
            while chunk := os.read(self.master, 4096):
                self.seen += chunk

    @property
    def text(self) -> str:
        return self.seen.decode("utf-8", "replace")

    def asked(self, times: int) -> None:
        wait_for(lambda: self.text.count(QUESTION) >= times)

    def types(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def ended(self, code: int) -> None:
        assert self.process.wait(PATIENCE_S) == code, self.text
        assert "Traceback" not in self.text


@contextmanager
def at_a_terminal(stage: Stage, *arguments: str) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "fleet", *arguments],
        cwd=stage.room,
        env=stage.environment | {"TERM": "xterm"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    terminal = Terminal(process, master)
    reader = Thread(target=terminal.read)
    reader.start()
    try:
        yield terminal
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        reader.join()
        os.close(master)


@pytest.fixture
def order(stage: Stage, repository: Path, model: Serve) -> tuple[str, ...]:
    url = model(script(subtask("one")))
    return ("run", "Write", "--name", stage.run_name, "--base-url", url, "--repo", str(repository))


def test_only_a_clear_yes_lets_the_plan_run(stage: Stage, order: tuple[str, ...]) -> None:
    with at_a_terminal(stage, *order) as terminal:
        terminal.asked(1)
        terminal.types("\n")
        terminal.asked(2)
        terminal.types("xy\n")
        terminal.asked(3)
        state = stage.look(stage.run_name)
        assert state is not None
        assert (state.attempts, state.cancelled) == (0, False)
        terminal.types("yes\n")
        terminal.ended(0)


def test_a_no_cancels_it(stage: Stage, order: tuple[str, ...]) -> None:
    with at_a_terminal(stage, *order) as terminal:
        terminal.asked(1)
        terminal.types("no\n")
        terminal.ended(1)
    assert "CANCELLED" in terminal.text
    assert f"fleet resume {stage.run_name}" in terminal.text


def test_a_yes_from_elsewhere_is_as_good(stage: Stage, order: tuple[str, ...]) -> None:
    with at_a_terminal(stage, *order) as terminal:
        terminal.asked(1)
        stage.fleet("approve", stage.run_name).ended(0)
        terminal.ended(0)
    assert "LANDED" in terminal.text


def test_ctrl_c_at_the_question_leaves_a_run_that_can_go_on(stage: Stage, order: tuple[str, ...]) -> None:
    with at_a_terminal(stage, *order) as terminal:
        terminal.asked(1)
        os.killpg(terminal.process.pid, signal.SIGINT)
        terminal.ended(130)
    assert stage.status(stage.run_name)["state"] == "interrupted"
