"""What a terminal must never be sent does not get past `safe`."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dashboards.text.safe import LINE, safe, safe_block, safe_goal
from tests.dashboards.hostile import HOSTILE, problems

anything = st.text(st.characters()) | st.text(st.characters(categories=["Cc", "Cf", "Cs", "Co", "Zl", "Zp"]))


@given(anything)
@example(HOSTILE)
@example("\ud800 half a character")
def test_no_character_that_a_terminal_acts_on_survives(text: str) -> None:
    assert problems([safe(text)]) == []


@given(anything, st.integers(2, 400))
@example(HOSTILE, 40)
def test_none_survives_in_a_block_either(text: str, lines: int) -> None:
    assert problems(safe_block(text, lines=lines).split("\n")) == []


@given(anything, st.integers(1, 100))
def test_a_line_is_one_line_and_no_longer_than_asked(text: str, limit: int) -> None:
    line = safe(text, limit=limit)
    assert len(line) <= limit
    assert line.splitlines() == ([line] if line else [])


@given(st.text(st.characters(max_codepoint=127)))
def test_plain_text_is_shown_as_if_each_character_were_looked_at(text: str) -> None:
    assert safe(text) == safe(f"{text}é")[:-1].rstrip()


@given(st.text(), st.integers(2, 50))
def test_a_block_has_no_more_lines_than_asked_and_one_that_says_so(text: str, lines: int) -> None:
    assert len(safe_block(text, lines=lines).split("\n")) <= lines + 1


@pytest.mark.parametrize(
    "attack",
    [
        "\x1b]52;c;aGFja2Vk\x07",
        "\x1b]0;title\x1b\\",
        "\x1b[2J",
        "\x9b2J",
        "\x9d52;c;x\x9c",
        "\x1bP$q\x1b\\",
        "a\rb",
        "a\x08b",
        "\u202egnp.exe",
        "a\u2066b\u2069",
        "pass\u200bword",
        "\ufeffx",
        "\U000e0041",
        "\ue000",
    ],
    ids=ascii,
)
def test_each_known_trick_is_disarmed_and_seen(attack: str) -> None:
    shown = safe(f"before {attack} after")
    assert problems([shown]) == []
    assert shown.startswith("before ")
    assert shown.endswith(" after")
    assert "\N{REPLACEMENT CHARACTER}" in shown or "\r" in attack


def test_ordinary_text_of_any_language_stays_as_it_is() -> None:
    text = "Grüße, 世界! naïve café — ½ ✔ שלום 🎉 [not markup]"
    assert safe(text) == text
    assert safe_block(text) == text


def test_what_is_too_long_is_cut_and_says_so() -> None:
    assert safe("x" * 10_000_000).endswith("…")
    assert len(safe("x" * 10_000_000)) == LINE
    shown = safe_block("\n".join(map(str, range(1000))), lines=10).split("\n")
    assert shown == ["0", "1", "2", "3", "4", "… 990 lines omitted …", "995", "996", "997", "998", "999"]


def test_a_long_line_of_a_block_is_cut() -> None:
    assert len(safe_block("x" * 10_000_000)) <= LINE


def test_what_is_no_text_is_shown_as_text() -> None:
    assert safe(None) == "None"
    assert safe(3.5) == "3.5"


def test_the_title_of_a_goal_does_not_run_into_its_text() -> None:
    goal = "\nWrite textkit\n\nIt holds stubs.\nWrite \x1b[31mall.\n  \nAnd test them.\n"
    assert safe_goal(goal, limit=200) == "Write textkit · It holds stubs. Write �[31mall. · And test them."
    assert safe_goal(goal, limit=9) == "Write te…"
    assert safe_goal("one line", limit=200) == "one line"
