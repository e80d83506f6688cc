"""The keys are told once, and the same everywhere: help, document, and what is bound."""

from pathlib import Path

from dashboards.terminal.acting import Acting
from dashboards.terminal.keys import ACT, GROUPS, help_text

DOCUMENT = Path(__file__).parents[3] / "docs" / "terminal.md"


def test_the_document_tells_every_key() -> None:
    told = DOCUMENT.read_text(encoding="utf-8")
    missing = [key for group in GROUPS for key in group.keys if f"| `{key.key}` | {key.says} |" not in told]
    assert missing == []


def test_the_help_tells_every_key() -> None:
    assert all(f"{key.says}" in help_text() for group in GROUPS for key in group.keys)


def test_what_acts_is_told_and_what_is_told_acts() -> None:
    assert {binding.key for binding in Acting.KEYS} == {key.key for key in ACT.keys}
