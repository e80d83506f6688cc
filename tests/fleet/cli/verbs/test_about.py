"""Help, version and completion as verbs."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer.main

from fleet import __version__
from fleet.cli.completion import PLACES, script
from fleet.cli.entry import app
from fleet.cli.verb_table import VERBS
from fleet.errors import FleetError, UsageError


def fleet(*arguments: str) -> None:
    app([*arguments], prog_name="fleet", standalone_mode=False)


@pytest.mark.parametrize("path", [("status",), ("plans", "check"), ("config",)], ids=" ".join)
def test_the_help_of_a_verb_is_the_same_in_both_ways(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    fleet("help", *path)
    helped = capsys.readouterr().out
    fleet(*path, "--help")
    assert helped == capsys.readouterr().out
    assert f"Usage: fleet {' '.join(path)}" in helped


def test_help_for_no_verb_has_a_hint() -> None:
    with pytest.raises(UsageError, match=r"`fleet` has no verb 'stauts'; did you mean 'status'\?"):
        fleet("help", "stauts")
    with pytest.raises(UsageError, match=r"`fleet plans` has no verb 'chek'; did you mean 'check'\?"):
        fleet("help", "plans", "chek")


def test_all_verbs_are_listed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    fleet("help", "--json")
    assert list(json.loads(capsys.readouterr().out)["verbs"]) == list(VERBS)
    fleet("version", "--json")
    assert json.loads(capsys.readouterr().out) == {"schema_version": 1, "version": __version__}


def test_every_verb_has_an_example_and_a_help_for_each_option() -> None:
    root: Any = typer.main.get_command(app)
    for name, command in root.commands.items():
        for below in getattr(command, "commands", {"": command}).values():
            assert "Examples:" in below.help, name
            assert all(parameter.help for parameter in below.params), name


@pytest.mark.parametrize("shell", PLACES)
def test_a_script_is_installed_where_its_shell_looks(
    shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    fleet("completion")
    assert capsys.readouterr().out == script(shell)
    place = Path(PLACES[shell][0].replace("~", str(tmp_path)))
    for _ in range(2):
        fleet("completion", "--install")
        assert place.read_text(encoding="utf-8") == script(shell)
    place.write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match="exists; --force overwrites it"):
        fleet("completion", "--install")
    fleet("completion", "--install", "--force")
    assert place.read_text(encoding="utf-8") == script(shell)


def test_a_home_that_takes_nothing_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".local").write_text("no folder", encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(FleetError, match="can't be made: Not a directory; -o FILE writes it elsewhere"):
        fleet("completion", "bash", "--install")
    with pytest.raises(UsageError, match="there is no completion for tcsh; name one of bash, zsh, fish"):
        fleet("completion", "tcsh")
