"""Reading and writing TOML: bounded, and every message names its file and line."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.config.layer import WHOLE
from fleet.config.load import default_config
from fleet.config.toml import dump_toml, key_lines, parse_toml, read_toml, shown_key
from fleet.errors import UsageError

VALUES = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(st.characters(exclude_categories=["Cs"])).filter(lambda text: "\r" not in text),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab-. \"'", max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text("ab-. \"'", max_size=4), VALUES, max_size=4))
def test_what_is_written_reads_the_same(data: dict[str, object]) -> None:
    assert parse_toml(dump_toml(data), name="plan.toml") == data


def test_a_whole_configuration_is_written_without_the_keys_that_have_no_value() -> None:
    written = dump_toml(default_config().model_dump(mode="json", exclude_none=True))
    assert WHOLE.model_validate(parse_toml(written, name="x")) == default_config()
    assert "budget_dollars" not in written


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a = 1\nb 2\n", "x.toml:2: invalid TOML: Expected '=' after a key"),
        (b"a = 1\na = 2\n", "x.toml:2: invalid TOML: Cannot overwrite a value"),
        (b"a = 1\nb = '\xff'\n", "x.toml:2: not UTF-8 text"),
        (b"a = " + b"[" * 100_000, "x.toml: nested too deeply"),
        (b".".join([b"a"] * 5_000) + b" = 1", "x.toml: nested too deeply"),
        (b"a = " + b"1" * 10_000, "x.toml: invalid TOML"),
        (b"a = 1 # " + b"x" * 2000, "x.toml: larger than 1,000 bytes"),
    ],
    ids=["no value", "twice", "encoding", "lists", "tables", "digits", "size"],
)
def test_a_broken_file_is_named_with_its_line(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(data)
    with pytest.raises(UsageError) as caught:
        read_toml(path, largest=1000 if "larger" in message else 1_000_000)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)


def test_a_missing_file_a_folder_and_a_pipe_are_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, message in (("none", "no such file"), (".", "not a regular file"), ("pipe", "not a regular file")):
        with pytest.raises(UsageError, match=message):
            read_toml(tmp_path / name)


def test_lines_are_found_for_tables_and_keys_however_they_are_written() -> None:
    text = 'top = 1\n\n[a]\nx = 1\n"y z" = 2\nb.c = 3\n[ "q.r" . s ]\nt = [\n  1,\n]\n# u = 1\n'
    lines = key_lines(text)
    assert lines["top",] == 1
    assert lines["a", "x"] == 4
    assert lines["a", "y z"] == 5
    assert lines["a", "b", "c"] == lines["a", "b"] == 6
    assert lines["q.r", "s", "t"] == 8
    assert not [path for path in lines if "u" in path]


def test_keys_are_shown_as_one_writes_them_and_without_control_characters() -> None:
    assert shown_key(("models", "prices", "a.b", "input")) == 'models.prices."a.b".input'
    assert shown_key(("a", "\x1b]52;c\x07")) == 'a."\\u001b]52;c\\u0007"'
