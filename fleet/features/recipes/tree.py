"""The files of a repository as detection sees them: names, the beginnings of texts, and what git ignores.

The contents are hostile: readers limit what they read, parsing never raises, and every value is checked.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import translate
from functools import cache
from typing import Any

from fleet.config.toml import parse_toml
from fleet.core.base.output import parse_json
from fleet.errors import UsageError

DEEPEST = 6  # folders; tests and manifests of a project lie higher
MOST_NAMES = 50_000
LONGEST_NAME = 200  # characters
LONGEST_LINE = 5_000  # characters of a line of TOML


def _nothing(name: str) -> str:
    del name
    return ""


def _no_program(name: str) -> bool:
    del name
    return False


@dataclass(frozen=True, slots=True)
class Tree:
    """A repository, or a folder of it."""

    names: tuple[str, ...]
    """The paths of tracked files below this folder, in order."""
    read: Callable[[str], str] = _nothing
    """The text of a file by its path from the repository's root; empty if there is none to read."""
    ignored: tuple[str, ...] = ()
    """What git ignores and lies in the checkout; a folder ends in a slash."""
    has_program: Callable[[str], bool] = _no_program
    """Whether the box finds a program of this name."""
    folder: str = ""
    """Where this is in the repository; empty at its root."""
    known: frozenset[str] = field(default_factory=frozenset)

    @staticmethod
    def of(
        files: Mapping[str, str], *, ignored: Iterable[str] = (), programs: Iterable[str] = (), folder: str = ""
    ) -> "Tree":
        """A tree of texts that are at hand."""
        found = frozenset(programs)
        names = usable_names(files)
        return Tree(
            names, lambda name: files.get(name, ""), tuple(ignored), found.__contains__, folder, frozenset(names)
        )

    def at(self, folder: str) -> "Tree":
        """One folder of this tree, as if it were a repository of its own."""
        start = f"{folder}/"
        names = tuple(name.removeprefix(start) for name in self.names if name.startswith(start))
        ignored = tuple(name.removeprefix(start) for name in self.ignored if name.startswith(start))
        path = f"{self.folder}/{folder}".lstrip("/")
        return replace(self, names=names, ignored=ignored, folder=path, known=frozenset(names))

    def has(self, *names: str) -> bool:
        """Whether there is a file of one of these names."""
        return any(name in self.known for name in names)

    def first(self, *names: str) -> str:
        """The first of these names that is a file; empty if none is."""
        return next((name for name in names if name in self.known), "")

    def ignores(self, name: str) -> bool:
        """Whether the checkout has a file or folder of this name that git ignores."""
        return name in self.ignored or f"{name}/" in self.ignored

    def matching(self, *patterns: str) -> tuple[str, ...]:
        """The files that match one of these patterns; `*` crosses folders."""
        expression = _expression(patterns)
        return tuple(name for name in self.names if expression.fullmatch(name))

    def folders(self) -> Iterator[str]:
        """Every folder that has a file, the highest first."""
        paths = {name.rpartition("/")[0] for name in self.names if "/" in name}
        yield from sorted(paths, key=lambda path: (path.count("/"), path))

    def text(self, name: str) -> str:
        return self.read(f"{self.folder}/{name}".lstrip("/")) if name in self.known else ""

    def json(self, name: str) -> dict[str, Any]:
        """The object in a JSON file; empty if there is none."""
        try:
            data = parse_json(self.text(name) or "{}")
        except ValueError:
            return {}
        return data if isinstance(data, dict) else {}

    def toml(self, name: str) -> dict[str, Any]:
        """The tables of a TOML file; empty if it has none or is malformed."""
        text = self.text(name)
        if max(map(len, text.splitlines()), default=0) > LONGEST_LINE:  # a long key takes the parser quadratic time
            return {}
        try:
            return parse_toml(text, name=name)
        except UsageError:
            return {}


def usable_names(names: Iterable[str]) -> tuple[str, ...]:
    """The names that detection looks at: none too deep, too long or unprintable, and a limited number."""
    usable = (name for name in names if len(name) <= LONGEST_NAME and name.isprintable() and name.count("/") <= DEEPEST)
    by_depth = sorted(usable, key=lambda name: (name.count("/"), name))
    return tuple(sorted(by_depth[:MOST_NAMES]))


def table(data: object, *keys: str) -> dict[str, Any]:
    """The table at a path of keys; empty if something else is there."""
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


def strings(data: object) -> tuple[str, ...]:
    """The plain texts of a list; others are left out."""
    items = data if isinstance(data, list) else ()
    return tuple(item for item in items if isinstance(item, str) and item and item.isprintable())


@cache
def _expression(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, patterns)))
