"""The library of plans: files in `.fleet/plans` of a repository and in the user's own folder, called by their names.

A repository's shelf was filled by whoever wrote the repository, so a name that stands on both is nobody's to guess.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from fleet.config import user_file_path
from fleet.core.ids import is_slug
from fleet.core.nearest import did_you_mean
from fleet.core.parameters import Parameter, declared
from fleet.epic import PLAN_FILES, listed, read_data
from fleet.errors import UsageError

MOST = 1_000  # plans of one shelf that are looked at
REPOSITORY_SHELF = Path(".fleet") / "plans"

Where = Literal["repository", "user"]


@dataclass(frozen=True, slots=True)
class Shelf:
    """One folder of plans. `within` is what it may not lead out of."""

    where: Where
    path: Path
    within: Path | None = None

    def files(self) -> Iterator[Path]:
        try:
            found = sorted(self.path.iterdir())
        except OSError:
            return
        plans = (path for path in found if path.suffix in PLAN_FILES and is_slug(path.stem) and path.is_file())
        yield from islice(plans, MOST)


@dataclass(frozen=True, slots=True)
class Entry:
    """A plan in the library, or what is wrong with the file."""

    name: str
    where: Where
    path: Path
    title: str = ""
    parameters: tuple[tuple[str, Parameter], ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Library:
    """The shelves there are: the repository's, then the user's."""

    shelves: tuple[Shelf, ...]

    @property
    def folders(self) -> tuple[Path, ...]:
        return tuple(shelf.path for shelf in self.shelves)

    def entries(self) -> Iterator[Entry]:
        for shelf in self.shelves:
            for path in shelf.files():
                yield _entry(shelf, path)

    def names(self) -> list[str]:
        return [path.stem for shelf in self.shelves for path in shelf.files()]

    def find(self, name: str) -> Path | None:
        """The file of the plan called `name`. Raises `UsageError` where more than one is called so."""
        found = [path for shelf in self.shelves for path in shelf.files() if path.stem == name]
        if len(found) > 1:
            raise UsageError(f"{len(found)} plans are called {name}; name the file: {', '.join(map(str, found))}")
        return found[0] if found else None

    def plan(self, given: str) -> Path:
        """The file that a person means: a path, or a name of the library."""
        path = Path(given)
        if looks_like_a_file(given):
            return path
        found = self.find(given)
        if found is None and not path.is_file():
            raise UsageError(f"{self.unknown(given)}; see `fleet plans list`, a file ends in .toml or .json")
        return found or path

    def unknown(self, name: str) -> str:
        there = sorted(set(self.names()))
        return f"no plan of the library is called {name!r}{did_you_mean(name, there)}"

    def save(self, text: str, name: str, suffix: str, *, where: Where, force: bool) -> Path:
        """Keep a plan's document under a name. Writes nothing else, and nothing over another plan without `force`."""
        if not is_slug(name) or name.endswith(PLAN_FILES):
            raise UsageError(f"{name!r} can't name a plan: 1 to 64 letters, digits, dots, dashes or underscores")
        shelf = next((shelf for shelf in self.shelves if shelf.where == where), None)
        if shelf is None:
            raise UsageError("there is no repository here to keep a plan in; --user keeps it in your own library")
        there = [path for end in PLAN_FILES if os.path.lexists(path := shelf.path / f"{name}{end}")]
        if there and not force:
            raise UsageError(f"{there[0]} exists; --force overwrites it")
        path = shelf.path / f"{name}{suffix}"
        _refuse_to_leave(shelf)
        try:
            shelf.path.mkdir(parents=True, exist_ok=True)
            replace_text(path, text)
            for other in there:
                if other != path:
                    other.unlink()
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from error
        return path


def library(root: Path | None) -> Library:
    """The library as it is for a repository (its root), or without one."""
    own = Shelf("user", user_file_path().parent / "plans")
    if root is None:
        return Library((own,))
    return Library((Shelf("repository", root / REPOSITORY_SHELF, within=root), own))


def looks_like_a_file(given: str) -> bool:
    return "/" in given or given.endswith(PLAN_FILES)


def replace_text(path: Path, text: str) -> None:
    """Write a file whole or not at all; a link in its place is replaced, not followed."""
    passing = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with passing.open("x", encoding="utf-8") as file:
            file.write(text)
        passing.replace(path)
    except BaseException:
        with suppress(OSError):
            passing.unlink()
        raise


def _refuse_to_leave(shelf: Shelf) -> None:
    """A repository can hold links, and they are not ours to follow out of it."""
    if shelf.within is not None and not shelf.path.resolve().is_relative_to(shelf.within.resolve()):
        raise UsageError(f"{shelf.path} leads out of the repository, to {shelf.path.resolve()}; nothing was written")


def _entry(shelf: Shelf, path: Path) -> Entry:
    try:
        data = read_data(path)
    except UsageError as error:
        return Entry(path.stem, shelf.where, path, problem=str(error))
    parameters = declared(data)
    if isinstance(parameters, tuple):
        return Entry(path.stem, shelf.where, path, problem=listed(str(path), parameters))
    title = next((said for key in ("goal", "plan_id") if isinstance(said := data.get(key), str) and said.strip()), "")
    first = next(iter(title.strip().splitlines()), "")
    return Entry(path.stem, shelf.where, path, title=first, parameters=tuple(parameters.items()))
