"""The keys are in one table, and are the same in the help, in the document and in the bindings."""

from collections import Counter
from pathlib import Path

import pytest
from rich.cells import cell_len

from dashboards.terminal.app import ACTIONS, GROUPS, FleetApp, help_text

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "keys.md"


def test_the_document_explains_every_key() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    rows = [f"| `{key}` | {meaning} |" for keys in GROUPS.values() for key, meaning in keys.items()]
    assert [row for row in rows if row not in text] == []


@pytest.mark.parametrize("width", [40, 80, 104, 200])
def test_the_help_explains_every_key_in_the_width_that_there_is(width: int) -> None:
    text = help_text(width)
    assert max(map(cell_len, text.splitlines())) <= width
    shown = words(text)
    for keys in GROUPS.values():
        assert [key for key in keys if f"  {key} " not in text] == []
        assert sum(map(words, keys.values()), Counter[str]()) <= shown


def test_a_wide_help_has_two_columns() -> None:
    narrow, wide = help_text(80).splitlines(), help_text(104).splitlines()
    assert len(wide) < len(narrow) * 0.8


def words(text: str) -> Counter[str]:
    return Counter(text.split())


def test_each_key_of_an_action_has_one() -> None:
    assert [name for name, _ in ACTIONS.values() if not callable(getattr(FleetApp, f"action_{name}", None))] == []
