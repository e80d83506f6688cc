"""One command line: an option means the same on every verb, and the reference says which verbs have it."""

import re
from collections.abc import Iterator
from copy import copy
from typing import Any

import pytest
import typer.main
from typer.exceptions import TyperException

from fleet.cli.entry import CHAOS, app, usage_error
from fleet.cli.verb_table import VERBS
from tests.fleet.cli.grammar import PAGE, Known, inconsistencies, known_verbs


@pytest.fixture(scope="module")
def verbs() -> list[Known]:
    return known_verbs()


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def test_there_are_no_inconsistencies(verbs: list[Known], page: str) -> None:
    assert len(verbs) > len(VERBS)
    assert inconsistencies(verbs, page) == []


def test_every_verb_that_takes_something_in_common_is_counted(verbs: list[Known]) -> None:
    assert sum(len(verb.takes) for verb in verbs) > 2 * len(verbs)


@pytest.mark.parametrize("option", ["--with-faults", "--faults", "--seed"])
def test_an_option_that_was_removed_comes_with_its_replacement(option: str) -> None:
    with pytest.raises(TyperException) as refused:
        app(["rehearse", option], prog_name="fleet", standalone_mode=False)
    assert usage_error(refused.value).hint == CHAOS


def _without(verbs: list[Known], name: str, option: str) -> list[Known]:
    return [
        Known(
            verb.name, verb.verb, verb.arguments, {key: value for key, value in verb.options.items() if key != option}
        )
        if verb.name == name
        else verb
        for verb in verbs
    ]


def _changed(verbs: list[Known], name: str, option: str, **attributes: object) -> Iterator[Known]:
    for verb in verbs:
        if verb.name != name:
            yield verb
            continue
        other = copy(verb.options[option])
        for key, value in attributes.items():
            setattr(other, key, value)
        yield Known(verb.name, verb.verb, verb.arguments, {**verb.options, option: other})


@pytest.mark.parametrize(
    ("name", "option"),
    [("status", "--run"), ("cancel", "--yes"), ("logs", "--repo"), ("diff", "--json"), ("report", "--force")],
)
def test_a_verb_that_lacks_an_option_is_found(verbs: list[Known], page: str, name: str, option: str) -> None:
    found = inconsistencies(_without(verbs, name, option), page)
    assert any(f"fleet {name}: " in line and option in line for line in found), found
    assert any("the reference says" in line and f"fleet {name} " in line for line in found), found


@pytest.mark.parametrize(
    ("name", "option", "attributes", "why"),
    [
        ("report", "--output", {"opts": ["--output"]}, "--output has 2 forms"),
        ("audit", "--repo", {"help": "Where the repository is now."}, "--repo has 2 forms"),
        ("logs", "--attempt", {"opts": ["--attempt", "-y"]}, "-y is short for"),
        ("retry", "--guidance", {"metavar": "<str>"}, "no kind of value"),
    ],
)
def test_an_option_with_another_meaning_is_found(
    verbs: list[Known], name: str, option: str, attributes: dict[str, object], why: str
) -> None:
    found = inconsistencies(list(_changed(verbs, name, option, **attributes)), "")
    assert any(why in line for line in found), found


def test_a_row_of_the_table_that_is_wrong_is_found(verbs: list[Known], page: str) -> None:
    row = next(line for line in page.splitlines() if line.startswith("| `fleet status`"))
    assert inconsistencies(verbs, page.replace(row, row.replace("yes", "", 1)))
    assert inconsistencies(verbs, page.replace(row, row.replace("status", "statsu")))
    meaning = next(line for line in page.splitlines() if re.match(r"\| .*--force", line))
    assert inconsistencies(verbs, page.replace(meaning, "")) == ["the reference does not say what --force means"]


def test_every_verb_of_the_program_is_in_a_group_of_the_help() -> None:
    root: Any = typer.main.get_command(app)
    assert list(root.commands) == list(VERBS)
