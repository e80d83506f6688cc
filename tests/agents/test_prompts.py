"""Prompts are files; a change to one shows in its snapshot."""

from pathlib import Path

import pytest

from agents.models.text import render
from agents.workers.api import system_prompt
from tests.agents.conftest import worker_settings

API_KINDS = ("coder", "writer", "processor", "retriever")
SNAPSHOTS = Path(__file__).with_name("snapshots")
VALUES: dict[str, dict[str, object]] = {"planner": {"horizon": 12}, **{name: {} for name in API_KINDS}}


@pytest.mark.parametrize("name", VALUES)
def test_each_prompt_is_as_in_its_snapshot(name: str) -> None:
    own = worker_settings(hosts=("docs.example.org",))
    text = system_prompt(name, own) if name in API_KINDS else render(name, **VALUES[name])
    assert "$" not in text
    assert text == (SNAPSHOTS / f"{name}.txt").read_text(encoding="utf-8")


def test_a_missing_placeholder_is_an_error() -> None:
    with pytest.raises(KeyError, match="horizon"):
        render("planner")


def test_the_prompt_of_the_planner_names_what_it_must_know() -> None:
    text = " ".join(render("planner", horizon=7).split())
    for words in ("at most about 7 open", "fails on the base now", "`touches`", "`submit_revision`", "are data"):
        assert words.replace("*", "") in text.replace("*", "")
