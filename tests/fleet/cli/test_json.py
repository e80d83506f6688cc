"""What verbs print with --json: one document, whose shape has a version."""

import json
from pathlib import Path
from typing import Any

import pytest

from fleet.cli.entry import run_program
from fleet.read.base_view import SCHEMA_VERSION

CHECK = {"criterion": "x exists", "run": "test -f x"}
PLAN = {"goal": "Greet.", "subtasks": [{"id": "one", "title": "One", "goal": "Write x.", "acceptance": [CHECK]}]}


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the program in a folder without a repository, and returns its exit code with the document that it prints."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("FLEET_STATE_DIR", str(tmp_path / "state"))
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    (tmp_path / "broken.json").write_text('{"subtasks": 7}')

    def run(*arguments: str) -> tuple[int, Any]:
        with pytest.raises(SystemExit) as ended:
            run_program([*arguments, "--json"])
        return int(str(ended.value.code or 0)), json.loads(capsys.readouterr().out)

    return run


@pytest.mark.parametrize(
    "verb",
    [
        ("plans", "check", "plan.json"),
        ("plans", "diff", "plan.json", "plan.json"),
        ("plans", "graph", "plan.json"),
        ("plans", "graph", "plan.json", "-o", "plan.dot"),
        ("plans", "save", "plan.json", "greet", "--user"),
        ("clean",),
        ("completion", "bash"),
        ("help",),
        ("version",),
    ],
    ids=" ".join,
)
def test_a_document_has_the_version_of_its_shape(program: Any, verb: tuple[str, ...]) -> None:
    code, document = program(*verb)
    assert (code, document["schema_version"]) == (0, SCHEMA_VERSION)


def test_each_element_of_a_list_has_the_version(program: Any) -> None:
    program("plans", "save", "plan.json", "greet", "--user")
    code, plans = program("plans", "list")
    assert (code, [(plan["schema_version"], plan["name"]) for plan in plans]) == (0, [(SCHEMA_VERSION, "greet")])


def test_a_plan_that_is_not_valid_is_one_document_with_the_reasons(program: Any) -> None:
    code, document = program("plans", "check", "broken.json")
    assert (code, document["error"]["code"]) == (2, "usage")
    assert "is not a list of subtasks" in document["error"]["message"]
