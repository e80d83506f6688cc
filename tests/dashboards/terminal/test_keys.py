"""The keys are in one table, and are the same in the help, in the document and in the bindings."""

from pathlib import Path

from dashboards.terminal.app import FleetApp
from dashboards.terminal.keys import ACTIONS, GROUPS, help_text

DOCUMENT = Path(__file__).parents[3] / "docs" / "terminal.md"


def test_the_document_explains_every_key() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    rows = [f"| `{key}` | {meaning} |" for keys in GROUPS.values() for key, meaning in keys.items()]
    assert [row for row in rows if row not in text] == []


def test_the_help_explains_every_key() -> None:
    assert all(meaning in help_text() for keys in GROUPS.values() for meaning in keys.values())


def test_each_key_of_an_action_has_one() -> None:
    assert [name for name, _ in ACTIONS.values() if not callable(getattr(FleetApp, f"action_{name}", None))] == []
