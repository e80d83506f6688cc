"""How the reference is made: what a comment is about, how a field is described, what is left alone in a page."""

import pytest
from pydantic import BaseModel, Field

from fleet.core.facts.facts import BatchTested, Failure, Report
from scripts.reference import commands, configuration, facts, metrics
from scripts.reference.page import BEGIN, END, replace_marked, table
from scripts.reference.shapes import default_text, type_text
from scripts.reference.source import class_doc, field_docs, field_types

FILE = """\
# About the whole file.

[run]
# This comment is about the section.

# Attempts at once.
workers = 16
# No more than this. No default.   [yours]
# budget_dollars = 20.0

[checks]
# What must pass.
protected = [
    # tests
    "**/conftest.py",
]
gate = ""  # the command
# Names of checks.
[checks.named]
# lint = "ruff check ."

# Who works.
[workers.coder]
# What it is.
kind = "coder"
"""


def test_a_comment_is_about_the_key_the_table_or_the_section_beside_it() -> None:
    sections = configuration.read(FILE)
    assert sections["run"].about == "This comment is about the section."
    assert sections["run"].keys == {
        "workers": "Attempts at once.",
        "budget_dollars": "No more than this. No default.   [yours]",
    }
    assert sections["checks"].keys == {
        "protected": "What must pass.",
        "gate": "the command",
        "named": "Names of checks.",
    }
    assert (sections["workers.NAME"].about, sections["workers.NAME"].keys) == ("Who works.", {"kind": "What it is."})


def test_keys_that_a_repository_may_not_set_are_marked() -> None:
    rows = [line for line in configuration.content().splitlines() if line.startswith("| `sandbox`")]
    assert len(rows) == 1
    assert rows[0].endswith("*Yours alone.* |")
    assert "[yours]" not in configuration.content()


class Pot(BaseModel):
    """A pot,
    for tests."""

    litres: float = Field(default=1.5, gt=0, le=9)
    """How much it takes."""
    lids: tuple[int, ...] = ()
    name: str | None = None
    owner: str


@pytest.mark.parametrize(
    ("name", "kind", "default"),
    [
        ("litres", "number, above 0, at most 9", "`1.5`"),
        ("lids", "list of whole number", "`[]`"),
        ("name", "text", "none"),
        ("owner", "text", "required"),
    ],
)
def test_a_field_is_described_in_words(name: str, kind: str, default: str) -> None:
    field = Pot.model_fields[name]
    assert (type_text(field), default_text(field)) == (kind, default)


def test_what_a_file_says_below_a_field_is_found() -> None:
    assert class_doc(Pot) == "A pot, for tests."
    assert field_docs(Pot) == {"litres": "How much it takes."}
    assert field_types(Pot)["name"] == "str | None"


def test_only_the_text_between_the_marks_is_replaced() -> None:
    page = f"# Mine\n\n{BEGIN}\n\nold\n\n{END}\n\nMine, too.\n"
    assert replace_marked(page, "new\n") == page.replace("old", "new")
    assert replace_marked(replace_marked(page, "new"), "new") == replace_marked(page, "new")
    with pytest.raises(ValueError, match="the page lacks"):
        replace_marked("# Mine\n", "new")


def test_a_cell_stays_one_cell() -> None:
    assert table(("a", "b"), [("x | y", "one\ntwo")]).splitlines()[-1] == "| x \\| y | one two |"


def test_the_fields_of_a_fact_are_listed_as_in_json() -> None:
    rows = {row[0]: row[1] for row in facts.rows(BatchTested)}
    assert rows["`landed`"] == "list of `Member`"
    assert rows["`red`"] == "`true` or `false`"
    assert {row[0]: row[1] for row in facts.rows(Report)}["`status`"] == "`done`, `failed`, `blocked`"
    assert {row[0]: row[1] for row in facts.rows(Failure)}["`status`"] == "whole number or null"


def test_every_verb_is_listed_with_its_options() -> None:
    made = commands.content()
    for heading in ("### fleet run", "#### fleet plans check", "#### fleet config show"):
        assert f"\n{heading}\n" in made
    assert "| `--budget` | number |  | Maximum cost in USD. fleet does not make calls that would exceed it. |" in made
    assert '$ fleet run "Add a health endpoint"\n' in made
    assert "$ fleet resume RUN --budget 40  # with a higher budget\n" in made


def test_metrics_that_only_the_working_process_knows_say_so() -> None:
    (row,) = [line for line in metrics.content().splitlines() if line.startswith("| `fleet_model_calls_in_flight`")]
    assert row.endswith("Exported only by the process that executes the run (`fleet run --metrics`). |")
