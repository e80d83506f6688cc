"""Whether each worker can work here is said before a run relies on it."""

from pathlib import Path
from typing import Any

import pytest

from fleet.app import Fleet
from fleet.cli.crew import look_at_workers
from fleet.config import Loaded
from fleet.settings import Config


def look(own: dict[str, Any], **box: Any) -> tuple[str, str]:
    """What is said of a worker, and what to do."""
    config = Config.model_validate({"workers": {"w": own}, "state": {"dir": "/nowhere"}, "box": box})
    ((name, said, fix),) = look_at_workers(Fleet(Loaded(config, {}), {}))
    assert name in {"w", "workers"}
    return said, fix


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({}, "coder, claude-haiku-5-5"),
        ({"models": ["a", "b"]}, "coder, a → b"),
        ({"kind": "retriever", "hosts": ["docs.example.org"]}, "retriever, claude-haiku-5-5, may ask docs.example.org"),
        ({"kind": "command", "command": "sh x {goal}", "network": True}, "command, runs sh, with the network"),
        ({"kind": "command", "command": "tools/deploy"}, "command, runs tools/deploy"),
    ],
)
def test_a_worker_that_can_work_is_shown_with_what_it_has(own: dict[str, Any], said: str) -> None:
    assert look(own) == (said, "")


@pytest.mark.parametrize(
    ("own", "fix"),
    [
        ({"kind": "codder"}, "did you mean 'coder'"),
        ({"kind": "retriever"}, "hosts: is missing"),
        ({"kind": "command"}, "command: is missing"),
        ({"kind": "command", "command": "no-such-program"}, "no-such-program is not found in the box's PATH"),
        ({"kind": "claude-code", "command": "no-such-claude"}, "no-such-claude is not in PATH"),
        ({"pass_environment": ["NO_SUCH_KEY"]}, "NO_SUCH_KEY is not set here"),
    ],
)
def test_a_worker_that_can_not_says_what_to_do(own: dict[str, Any], fix: str) -> None:
    assert fix in look(own)[1]


def test_a_program_has_to_be_shown_to_the_box(tmp_path: Path) -> None:
    program = tmp_path / "agent"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    own = {"kind": "command", "command": str(program)}
    assert "is not shown in the box" in look(own)[1]
    assert look({**own, "read_only": [str(tmp_path)]})[1] == ""
    assert look(own, sandbox="none")[1] == ""
