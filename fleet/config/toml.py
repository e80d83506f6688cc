"""Reads and writes TOML. Errors name the file and the line.

The content may be hostile: it must be a regular file of limited size, and it is only treated as data.
"""

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from fleet.core.base.output import is_deep
from fleet.errors import UsageError

LARGEST_FILE = 16 * 1024 * 1024  # bytes; a plan of 500 long subtasks has two million
DEEPEST = 64  # tables in tables; a plan has five

_LINE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")
_HEADER = re.compile(r"^\s*\[\[?\s*(?P<key>[^\[\]#][^\[\]]*)\]\]?")
_KEY = re.compile(r"""^\s*(?P<key>(?:"[^"]*"|'[^']*'|[A-Za-z0-9_.\s-])+?)\s*=""")


def read_toml(path: Path, *, largest: int = LARGEST_FILE) -> dict[str, Any]:
    """The data in a file. Raises `UsageError` if it can't be read."""
    return parse_toml(read_text(path, largest=largest), name=str(path))


def parse_toml(text: str, *, name: str) -> dict[str, Any]:
    """The data in `text`. Messages call it `name`."""
    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise UsageError(f"{name}: nested too deeply") from None
    except ValueError as error:  # a number of thousands of digits raises no TOMLDecodeError
        message = str(error)
        place = _LINE.search(message)
        where = f"{name}:{place[1] or len(text.splitlines())}" if place else name
        raise UsageError(f"{where}: invalid TOML: {_LINE.sub('', message)}") from None
    if is_deep(data, DEEPEST):  # dotted keys nest without recursion in the parser, and would not in its callers
        raise UsageError(f"{name}: nested too deeply")
    return data


def dump_toml(data: Mapping[str, Any]) -> str:
    """`data` as a TOML document. It must not contain None: TOML has no such value."""
    return tomli_w.dumps(data, multiline_strings=True)


def read_text(path: Path, *, largest: int = LARGEST_FILE) -> str:
    """The text of a regular file. Raises `UsageError` for any other kind, and never waits for a pipe."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UsageError(f"{path}: not a regular file")
            data = file.read(largest + 1)
    except IsADirectoryError:
        raise UsageError(f"{path}: not a regular file") from None
    except (OSError, ValueError) as error:  # a null character in a path is a ValueError
        raise UsageError(f"can't read {path}: {_reason(error)}") from None
    if len(data) > largest:
        raise UsageError(f"{path}: larger than {largest:,} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path}:{line}: not UTF-8 text") from None


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """The first line of each key and table, for messages. This is a guess by line, not a second parser."""
    lines: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = _path_of(header["key"])
            path = table
        elif key := _KEY.match(line):
            path = (*table, *_path_of(key["key"]))
        else:
            continue
        for length in range(1, len(path) + 1):
            lines.setdefault(path[:length], number)
    return lines


def shown_key(path: tuple[str, ...]) -> str:
    """A key in TOML syntax, with dots."""
    return ".".join(part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else _quoted(part) for part in path)


def _quoted(part: str) -> str:
    return '"' + "".join(c if c.isprintable() and c not in '"\\' else f"\\u{ord(c):04x}" for c in part) + '"'


def _path_of(key: str) -> tuple[str, ...]:
    try:
        data: Any = tomllib.loads(f"{key} = 0")
    except ValueError:
        return (key.strip(),)
    path: list[str] = []
    while isinstance(data, dict):
        name, data = next(iter(data.items()))
        path.append(name)
    return tuple(path)


def _without_waiting(path: str, flags: int) -> int:
    """Open a pipe without blocking, so that it can be recognized and rejected."""
    return os.open(path, flags | os.O_NONBLOCK)


def _reason(error: OSError | ValueError) -> str:
    return str(getattr(error, "strerror", None) or error).lower()
