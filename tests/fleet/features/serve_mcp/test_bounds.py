"""Results that fit a client: whatever a run holds, they are short, printable and still an object."""

import json

from hypothesis import given
from hypothesis import strategies as st

from fleet.features.serve_mcp.server import LEFT_OUT, LONGEST, bounded

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def test_what_is_short_stays_as_it_is() -> None:
    view = {"run": "r", "incidents": [{"why": "line\nline"}], "cost": 0.25, "ended": None}
    assert bounded(view) == view


def test_long_lists_and_texts_are_cut_and_that_is_said() -> None:
    view = bounded({"run": "r", "incidents": [{"evidence": "x" * 5_000, "n": n} for n in range(10_000)]})
    assert len(json.dumps(view)) <= LONGEST
    assert [each["n"] for each in view["incidents"]] == list(range(len(view["incidents"])))
    assert "lists are cut to" in view[LEFT_OUT]


def test_a_long_patch_keeps_its_beginning() -> None:
    view = bounded({"diff": "+ line\n" * 50_000})
    assert view["diff"].startswith("+ line\n+ line\n")
    assert 10_000 < len(view["diff"]) <= LONGEST


def test_what_can_not_be_made_short_keeps_its_single_values() -> None:
    wide = {f"key {n}": {"x" * 100: ["y" * 100] * 3} for n in range(5_000)}
    view = bounded({"run": "r", **wide})
    assert (view["run"], len(json.dumps(view)) <= LONGEST) == ("r", True)


def test_a_terminal_gets_nothing_to_act_on() -> None:
    view = bounded({"goal": "A\x1b]52;c;eA==\x07 \u202eB\ud800", "x\x1b": 1})
    assert "\x1b" not in json.dumps(view, ensure_ascii=False)
    json.dumps(view, ensure_ascii=False).encode()


def test_depth_has_an_end() -> None:
    deep: object = "x"
    for _ in range(500):
        deep = [deep]
    assert LEFT_OUT in bounded({"deep": deep})


@given(st.dictionaries(st.text(max_size=8), VALUES, max_size=6))
def test_any_data_becomes_an_object_within_the_limit(data: dict[str, object]) -> None:
    view = bounded(data, longest=2_000)
    assert len(json.dumps(view, ensure_ascii=False).encode()) <= 4 * 2_000
    assert len(json.dumps(view, ensure_ascii=False)) <= 2_000
