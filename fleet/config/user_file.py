"""Sets keys in the user's own configuration file without touching anything else in it."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fleet.config.layer import Key, nested
from fleet.config.toml import dump_toml, key_lines, parse_toml, read_text, shown_key
from fleet.errors import UsageError

LONGEST_VALUE = 40  # lines of a value that is replaced


def set_in_file(path: Path, values: Mapping[Key, object]) -> None:
    """Set keys in a configuration file, which need not exist. Raises `UsageError` where that needs a person."""
    path = path.resolve() if path.exists() else path
    text = read_text(path) if path.exists() else ""
    for key, value in values.items():
        text = with_key(text, key, value, name=str(path))
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".fleet-")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(file.fileno(), mode)
        os.replace(temporary, path)  # noqa: PTH105 - at once: a reader of the file sees all of it
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


def with_key(text: str, key: Key, value: object, *, name: str) -> str:
    """The text with a key set. Raises `UsageError` where only a parser that keeps comments could do that."""
    wanted = _set(parse_toml(text, name=name), key, value)
    for changed in _attempts(text, key, value):
        try:
            if parse_toml(changed, name=name) == wanted:
                return changed
        except UsageError:
            continue
    line = dump_toml(nested([(key, value)])).strip()
    raise UsageError(f"{name}: {shown_key(key)} can't be set there by a program; add it yourself:\n{line}")


def _attempts(text: str, key: Key, value: object) -> Iterator[str]:
    """Ways to set a key, of which some are not valid for the form of the file."""
    lines, places = text.splitlines(keepends=True), key_lines(text)
    entry = _entry(key[-1], value)
    if key in places:
        at = places[key] - 1
        yield from ("".join((*lines[:at], entry, *lines[at + length :])) for length in range(1, LONGEST_VALUE))
    if key[:-1] in places:
        at = places[key[:-1]]
        yield "".join((*lines[:at], entry, *lines[at:]))
    end = "\n" if text and not text.endswith("\n") else ""
    yield f"{text}{end}{chr(10) if text else ''}[{shown_key(key[:-1])}]\n{entry}"
    yield f"{shown_key(key)}{entry.removeprefix(key[-1])}{text}"


def _entry(key: str, value: object) -> str:
    """The line that sets a key."""
    if not isinstance(value, list):
        return dump_toml({key: value})
    items = ", ".join(dump_toml({"x": item}).strip().removeprefix("x = ") for item in value)
    return f"{key} = [{items}]\n"


def _set(data: dict[str, Any], key: Key, value: object) -> dict[str, Any]:
    first, *rest = key
    below = data.get(first)
    inner = _set(below if isinstance(below, dict) else {}, tuple(rest), value) if rest else value
    return {**data, first: inner}
