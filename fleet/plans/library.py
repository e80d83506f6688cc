"""The library of plans: files in `.fleet/plans` of a repository and in the user's own folder, called by their names.

The author of a repository fills its folder, so a name that is in both folders is ambiguous and must be given as a path.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from fleet.config.load import user_file_path
from fleet.core.base.ids import did_you_mean, is_slug
from fleet.core.plans.parameters import Parameter, read_parameters
from fleet.errors import UsageError
from fleet.plans.input_files import PLAN_FILES, problem_list, read_data

MOST = 1_000  # plans of one folder that are read
REPOSITORY_FOLDER = Path(".fleet") / "plans"

Where = Literal["repository", "user"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A plan in the library, or the problem with its file."""

    name: str
    where: Where
    path: Path
    title: str = ""
    parameters: tuple[tuple[str, Parameter], ...] = ()
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Library:
    """The plans of a repository, if there is one, and of the user."""

    root: Path | None
    """The root of the repository."""

    @property
    def places(self) -> dict[Where, Path]:
        own = user_file_path().parent / "plans"
        return {"user": own} if self.root is None else {"repository": self.root / REPOSITORY_FOLDER, "user": own}

    @property
    def folders(self) -> tuple[Path, ...]:
        return tuple(self.places.values())

    def entries(self) -> Iterator[Entry]:
        for where, folder in self.places.items():
            for path in _plan_files(folder):
                yield _entry(where, path)

    @property
    def names(self) -> list[str]:
        return sorted({path.stem for path in self._files()})

    def _files(self) -> list[Path]:
        return [path for folder in self.folders for path in _plan_files(folder)]

    def find(self, name: str) -> Path | None:
        """The file of the plan called `name`. Raises `UsageError` if there is more than one."""
        files = [path for path in self._files() if path.stem == name]
        if len(files) > 1:
            raise UsageError(
                f"{len(files)} plans are called {name}", hint=f"name the file: {', '.join(map(str, files))}"
            )
        return files[0] if files else None

    def plan(self, given: str) -> Path:
        """The file that a person means by a path or by a name of the library."""
        path = Path(given)
        if looks_like_a_file(given):
            return path
        file = self.find(given)
        if file is None and not path.is_file():
            raise UsageError(f"{self.unknown(given)}", hint="see `fleet plans list`, a file ends in .toml or .json")
        return file or path

    def unknown(self, name: str) -> str:
        """A message for a name that no plan has."""
        return f"no plan of the library is called {name!r}{did_you_mean(name, self.names)}"

    def save(self, text: str, name: str, suffix: str, *, where: Where, force: bool) -> Path:
        """Save the document of a plan under a name. Another plan of this name is replaced only with `force`."""
        if not is_slug(name) or name.endswith(PLAN_FILES):
            raise UsageError(f"{name!r} can't name a plan: 1 to 64 letters, digits, dots, dashes or underscores")
        folder = self.places.get(where)
        if folder is None:
            raise UsageError("there is no repository here", hint="--user saves the plan in your own library")
        existing = [path for end in PLAN_FILES if os.path.lexists(path := folder / f"{name}{end}")]
        if existing and not force:
            raise UsageError(f"{existing[0]} exists", hint="--force overwrites it")
        if where == "repository" and self.root is not None and not folder.resolve().is_relative_to(self.root.resolve()):
            raise UsageError(f"{folder} leads out of the repository, to {folder.resolve()}", hint="nothing was written")
        path = folder / f"{name}{suffix}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            replace_text(path, text)
            for other in existing:
                if other != path:
                    other.unlink()
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from error
        return path


def looks_like_a_file(given: str) -> bool:
    return "/" in given or given.endswith(PLAN_FILES)


def replace_text(path: Path, text: str) -> None:
    """Write a whole file or nothing. A link in its place is replaced, not followed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _plan_files(folder: Path) -> Iterator[Path]:
    try:
        paths = sorted(folder.iterdir())
    except OSError:
        return
    plans = (path for path in paths if path.suffix in PLAN_FILES and is_slug(path.stem) and path.is_file())
    yield from islice(plans, MOST)


def _entry(where: Where, path: Path) -> Entry:
    try:
        data = read_data(path)
    except UsageError as error:
        return Entry(path.stem, where, path, problem=str(error))
    parameters = read_parameters(data)
    if isinstance(parameters, tuple):
        return Entry(path.stem, where, path, problem=problem_list(str(path), parameters))
    titles = (str(data[key]).strip() for key in ("goal", "plan_id") if isinstance(data.get(key), str))
    lines = next(filter(None, titles), "").splitlines()
    return Entry(path.stem, where, path, title=lines[0] if lines else "", parameters=tuple(parameters.items()))
