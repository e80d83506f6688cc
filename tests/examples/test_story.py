"""What the demo passes to `fleet`, and what it reads from its output."""

import tomllib
from pathlib import Path

import pytest

from examples.demo.fleet_cli import DemoError, Fleet, open_questions
from examples.demo.story import configuration, prepare_folder, read_options


def test_nothing_of_the_users_environment_reaches_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "CLAUDE_X", "FLEET_RUN_WORKERS", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "theirs")
    environment = Fleet(tmp_path, tmp_path / "config.toml").environment
    assert "theirs" not in environment.values()
    assert environment[environment["FLEET_MODELS_API_KEY_ENV"]]
    assert environment["FLEET_STATE_DIR"] == str(tmp_path)


def test_the_configuration_is_toml_with_a_gate() -> None:
    settings = tomllib.loads(configuration())
    assert settings["checks"]["gate"] == "python3 -m tests"
    assert settings["box"]["path"]


def test_only_unanswered_questions_are_open() -> None:
    status = {"questions": [{"id": "q1", "about": "a", "question": "?"}, {"id": "q2", "answer": "yes"}]}
    assert [question.id for question in open_questions(status)] == ["q1"]
    assert open_questions({}) == []


def test_a_folder_to_keep_must_be_empty(tmp_path: Path) -> None:
    assert prepare_folder(read_options(["--keep", str(tmp_path / "new")])).is_dir()
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(DemoError, match="not empty"):
        prepare_folder(read_options(["--keep", str(tmp_path)]))
    assert (tmp_path / "mine").exists()


def test_the_number_of_workers_follows_the_size() -> None:
    assert read_options([]).workers == 16
    assert read_options(["--subtasks", "120"]).workers == 120
    assert read_options(["--workers", "3"]).workers == 3
