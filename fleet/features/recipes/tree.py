"""The files of a repository for detection: names, the start of each text, and ignored files.

The contents may be hostile. Reads are limited, parsing never raises, and every value is checked.
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

DEEPEST = 6  # folder levels; tests and manifests of a project are above
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
    """Returns the text of a file by its path from the repository's root, or empty if it can't be read."""
    ignored: tuple[str, ...] = ()
    """The ignored files and folders in the checkout. Folders end with a slash."""
    has_program: Callable[[str], bool] = _no_program
    """Returns whether the sandbox has a program."""
    folder: str = ""
    """The path of this folder in the repository, or empty for its root."""
    known: frozenset[str] = field(default_factory=frozenset)

    @staticmethod
    def of(
        files: Mapping[str, str], *, ignored: Iterable[str] = (), programs: Iterable[str] = (), folder: str = ""
    ) -> "Tree":
        """Create a tree from texts."""
        found = frozenset(programs)
        names = usable_names(files)
        return Tree(
            names, lambda name: files.get(name, ""), tuple(ignored), found.__contains__, folder, frozenset(names)
        )

    def at(self, folder: str) -> "Tree":
        """Return a folder of this tree as a separate tree."""
        start = f"{folder}/"
        names = tuple(name.removeprefix(start) for name in self.names if name.startswith(start))
        ignored = tuple(name.removeprefix(start) for name in self.ignored if name.startswith(start))
        path = f"{self.folder}/{folder}".lstrip("/")
        return replace(self, names=names, ignored=ignored, folder=path, known=frozenset(names))

    def has(self, *names: str) -> bool:
        """Return whether one of these files exists."""
        return any(name in self.known for name in names)

    def first(self, *names: str) -> str:
        """Return the first of these files that exists, or empty if none does."""
        return next((name for name in names if name in self.known), "")

    def ignores(self, name: str) -> bool:
        """Return whether the checkout has an ignored file or folder with this name."""
        return name in self.ignored or f"{name}/" in self.ignored

    def matching(self, *patterns: str) -> tuple[str, ...]:
        """Return the files that match one of these patterns. `*` also matches slashes."""
        expression = _expression(patterns)
        return tuple(name for name in self.names if expression.fullmatch(name))

    def folders(self) -> Iterator[str]:
        """Yield all folders with files, the top levels first."""
        paths = {name.rpartition("/")[0] for name in self.names if "/" in name}
        yield from sorted(paths, key=lambda path: (path.count("/"), path))

    def text(self, name: str) -> str:
        return self.read(f"{self.folder}/{name}".lstrip("/")) if name in self.known else ""

    def json(self, name: str) -> dict[str, Any]:
        """Return the object in a JSON file, or empty if it does not have one."""
        try:
            data = parse_json(self.text(name) or "{}")
        except ValueError:
            return {}
        return data if isinstance(data, dict) else {}

    def toml(self, name: str) -> dict[str, Any]:
        """Return the tables of a TOML file, or empty if the file is missing or malformed."""
        text = self.text(name)
        if max(map(len, text.splitlines()), default=0) > LONGEST_LINE:  # the parser needs quadratic time for a long key
            return {}
        try:
            return parse_toml(text, name=name)
        except UsageError:
            return {}


def usable_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names for detection: not too deep, too long or unprintable, and limited in number."""
    usable = (name for name in names if len(name) <= LONGEST_NAME and name.isprintable() and name.count("/") <= DEEPEST)
    by_depth = sorted(usable, key=lambda name: (name.count("/"), name))
    return tuple(sorted(by_depth[:MOST_NAMES]))


def table(data: object, *keys: str) -> dict[str, Any]:
    """Return the table at a path of keys, or empty if there is no table."""
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


def strings(data: object) -> tuple[str, ...]:
    """Return the printable strings of a list."""
    items = data if isinstance(data, list) else ()
    return tuple(item for item in items if isinstance(item, str) and item and item.isprintable())


@cache
def _expression(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, patterns)))
