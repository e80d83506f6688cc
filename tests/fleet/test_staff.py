"""From the configuration to the workers: what is only named is looked up, and what is missing is said by its key."""

from pathlib import Path

import pytest

from fleet.ports import UsageError
from fleet.settings import WorkerKind
from fleet.staff import Surroundings, staff


def test_what_a_worker_names_is_filled_in(tmp_path: Path) -> None:
    (tmp_path / "senior.md").write_text("Think twice.\n")
    said = WorkerKind(
        kind="command",
        prompt="senior.md",
        command="tool --say 'two words' {goal}",
        environment={"COLOUR": "blue"},
        pass_environment=("TOOL_KEY",),
        read_only=("/opt/tool",),
        network=True,
    )
    (made,) = staff({"senior": said}, Surroundings(tmp_path, {"TOOL_KEY": "k-1", "OTHER": "x"})).values()
    assert made.prompt == "Think twice.\n"
    assert made.command == ("tool", "--say", "two words", "{goal}")
    assert made.extras.environment == {"COLOUR": "blue", "TOOL_KEY": "k-1"}
    assert made.extras.network is True
    assert made.secrets == ("k-1",)
    assert "k-1" not in repr(made)


def test_models_are_a_ladder_and_a_model_is_one_of_a_single_rung(tmp_path: Path) -> None:
    around = Surroundings(tmp_path, {})
    made = staff({"a": WorkerKind(model="m"), "b": WorkerKind(model="m", models=("x", "y")), "c": WorkerKind()}, around)
    assert [own.models for own in made.values()] == [("m",), ("x", "y"), ()]
    assert made["c"].extras.network is None


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (WorkerKind(prompt="none.md"), r"workers\.x\.prompt: .*none\.md can't be read: No such file"),
        (WorkerKind(command="tool 'open"), r"workers\.x\.command: .* can't be split into words: No closing quotation"),
        (WorkerKind(pass_environment=("A_KEY",)), r"workers\.x\.pass_environment: A_KEY is not set here"),
    ],
)
def test_what_is_missing_is_said_by_its_key(tmp_path: Path, said: WorkerKind, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        staff({"x": said}, Surroundings(tmp_path, {}))
