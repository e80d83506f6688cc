"""Help and version as verbs."""

import json
from typing import Any

import pytest
import typer.main

from fleet import __version__
from fleet.cli.entry import app
from fleet.cli.verb_table import VERBS
from fleet.errors import UsageError


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
    with pytest.raises(UsageError, match=r"unknown verb 'stauts' for `fleet`; did you mean 'status'\?"):
        fleet("help", "stauts")
    with pytest.raises(UsageError, match=r"unknown verb 'chek' for `fleet plans`; did you mean 'check'\?"):
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
