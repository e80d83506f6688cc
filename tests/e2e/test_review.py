"""On a terminal the plan is shown first, and nothing runs before a clear yes, typed there or given from elsewhere."""

import os
import signal
from pathlib import Path

import pytest

from tests.e2e.conftest import Serve
from tests.e2e.stage import Stage, script, subtask
from tests.e2e.terminal import at_a_terminal

QUESTION = "Type yes or no"


@pytest.fixture
def order(stage: Stage, repository: Path, model: Serve) -> tuple[str, ...]:
    url = model(script(subtask("one")))
    return ("run", "Write", "--name", stage.run_name, "--base-url", url, "--repo", str(repository), "--no-tui")


def test_only_a_clear_yes_lets_the_plan_run(stage: Stage, order: tuple[str, ...]) -> None:
    with at_a_terminal(stage, *order) as terminal:
        terminal.shows(QUESTION)
        terminal.types("\n")
        terminal.shows(QUESTION, times=2)
        terminal.types("xy\n")
        terminal.shows(QUESTION, times=3)
        state = stage.look(stage.run_name)
        assert state is not None
        assert (state.attempts, state.cancelled) == (0, False)
        terminal.types("yes\n")
        terminal.ended(0)


def test_a_no_cancels_it(stage: Stage, order: tuple[str, ...]) -> None:
    with at_a_terminal(stage, *order) as terminal:
        terminal.shows(QUESTION)
        terminal.types("no\n")
        terminal.ended(1)
    assert "CANCELLED" in terminal.text
    assert f"fleet resume {stage.run_name}" in terminal.text


def test_a_yes_from_elsewhere_is_as_good(stage: Stage, order: tuple[str, ...]) -> None:
    with at_a_terminal(stage, *order) as terminal:
        terminal.shows(QUESTION)
        stage.fleet("approve", stage.run_name).ended(0)
        terminal.ended(0)
    assert "LANDED" in terminal.text


def test_ctrl_c_at_the_question_leaves_a_run_that_can_go_on(stage: Stage, order: tuple[str, ...]) -> None:
    with at_a_terminal(stage, *order) as terminal:
        terminal.shows(QUESTION)
        os.killpg(terminal.process.pid, signal.SIGINT)
        terminal.ended(130)
    assert stage.status(stage.run_name)["state"] == "interrupted"
