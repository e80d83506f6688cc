"""Configuration: from flags, environment and files to one frozen `Config`, and where each value came from.

Precedence: flag > FLEET_* > --config > the repository's fleet.toml > the user's file > defaults. Read once;
every adapter gets its own slice of it from `app.py`. The only file that knows where this system keeps such things.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import platformdirs

from fleet.layers import (
    FLAG,
    Key,
    Layer,
    Problem,
    environment_layer,
    file_layer,
    flag_layer,
    flat,
    layer_problems,
    missing_keys,
    nested,
    shown_value,
)
from fleet.ports import UsageError
from fleet.settings import Config
from fleet.toml import shown_key
from fleet.trust import trust_problems

REPOSITORY_FILE = "fleet.toml"
_LISTED_PATHS: tuple[Key, ...] = (("box", "read_only"), ("box", "path"))
_WORKERS_PATHS, _DEPTH = ("read_only", "path"), 3  # of [workers.NAME]
_STATE_DIR: Key = ("state", "dir")


@dataclass(frozen=True, slots=True)
class Loaded:
    """What holds, and why."""

    config: Config
    origin: dict[str, str]
    """By dotted key: `flag`, the variable, the file, or `default`."""


def defaults_file() -> Path:
    """The complete, commented defaults: beside this file in an installed package, else at the project's root."""
    packaged = Path(__file__).with_name("config.toml")
    return packaged if packaged.is_file() else Path(__file__).parent.parent / "config.toml"


def user_file_path() -> Path:
    """Where the user's own configuration belongs on this system."""
    return platformdirs.user_config_path("fleet") / "config.toml"


def load_config(
    *,
    environ: Mapping[str, str],
    flags: Mapping[str, object] = MappingProxyType({}),
    config_file: Path | None = None,
    repository: Path | None = None,
    user_file: Path | Literal["default"] | None = "default",
) -> Loaded:
    """All sources as one. `repository` is the root of the target, `user_file` None reads no user file.

    Raises `UsageError` with every problem of every source.
    """
    reader = _Reader()
    reader.take_file(defaults_file(), origin="default")
    own = user_file_path() if user_file == "default" else user_file
    if own is not None and os.path.lexists(own):
        reader.take_file(own)
    if repository is not None and os.path.lexists(repository / REPOSITORY_FILE):
        reader.take_repository(repository)
    if config_file is not None:
        reader.take_file(config_file)
    reader.take_environment(environ)
    reader.take(flag_layer(flags))
    reader.stop_on_problems()
    return reader.finished(_Places.of(environ, repository))


class _Reader:
    """Collects layers, the weakest first, and their problems."""

    def __init__(self) -> None:
        self.layers: list[Layer] = []
        self.problems: list[str] = []

    def take(self, layer: Layer, problems: Iterable[Problem] = ()) -> None:
        self.problems += (problem.text for problem in sorted((*problems, *layer_problems(layer))))
        self.layers.append(layer)

    def take_file(self, path: Path, *, origin: str | None = None) -> None:
        try:
            self.take(file_layer(path, origin=origin))
        except UsageError as error:
            self.problems.append(str(error))

    def take_repository(self, repository: Path) -> None:
        path = repository / REPOSITORY_FILE
        if not path.resolve().is_relative_to(repository.resolve()):
            self.problems.append(f"{path}: is a link out of the repository; name the file itself with --config")
            return
        try:
            layer = file_layer(path)
        except UsageError as error:
            self.problems.append(str(error))
        else:
            self.take(layer, trust_problems(layer, repository, self.values()))

    def take_environment(self, environ: Mapping[str, str]) -> None:
        workers = {key[1] for key in self.values() if key[0] == "workers" and len(key) > 1}
        layer, problems = environment_layer(environ, workers)
        self.take(layer, problems)

    def values(self) -> dict[Key, object]:
        return {key: value for layer in self.layers for key, value in layer.values.items()}

    def stop_on_problems(self) -> None:
        problems = list(dict.fromkeys(self.problems))
        if len(problems) == 1:
            raise UsageError(problems[0])
        if problems:
            lines = "".join(f"\n  {problem}" for problem in problems)
            raise UsageError(f"{len(problems)} problems in the configuration:{lines}")

    def finished(self, places: "_Places") -> Loaded:
        """The layers on top of each other, whole, with the paths in them resolved."""
        values = self.values()
        for key in missing_keys(nested(values.items())):
            self.problems.append(self._layer_with(key[:-1]).problem(key, "is missing").text)
        self.stop_on_problems()
        theirs = [key for key in values if key[0] == "workers" and key[-1] in _WORKERS_PATHS and len(key) == _DEPTH]
        for key in (*_LISTED_PATHS, *theirs):
            values[key] = [self._resolved(places, key, path) for path in _texts(values.get(key))]
        values[_STATE_DIR] = self._state_dir(places, str(values.get(_STATE_DIR) or ""))
        self.stop_on_problems()
        config = Config.model_validate(nested(values.items()))
        origins = {key: origin for layer in self.layers for key, origin in layer.origins.items()}
        return Loaded(config, {shown_key(key): origins.get(key, "default") for key, _ in flat(config.model_dump())})

    def _layer_with(self, key: Key) -> Layer:
        return next(layer for layer in reversed(self.layers) if any(at[: len(key)] == key for at in layer.values))

    def _resolved(self, places: "_Places", key: Key, path: str) -> str:
        resolved = places.expand(path)
        if not resolved.startswith(("/", "{repo}")):
            message = f"must be absolute or begin with ~/ or {{repo}}, not {shown_value(path)}"
            self.problems.append(self._layer_with(key).problem(key, message).text)
        return resolved

    def _state_dir(self, places: "_Places", path: str) -> str:
        if not path:
            return str(platformdirs.user_state_path("fleet"))
        layer = self._layer_with(_STATE_DIR)
        if layer.origins.get(_STATE_DIR) == FLAG and not path.startswith(("~", "{repo}")):
            path = str(Path(path).absolute())  # as every program reads a path on its command line
        resolved = self._resolved(places, _STATE_DIR, path)
        if resolved.startswith("{repo}"):
            self.problems.append(layer.problem(_STATE_DIR, "begins with {repo}, and there is no repository here").text)
        return resolved


@dataclass(frozen=True, slots=True)
class _Places:
    """What `~` and `{repo}` stand for."""

    home: str
    repository: str | None

    @classmethod
    def of(cls, environ: Mapping[str, str], repository: Path | None) -> "_Places":
        home = environ.get("HOME") or str(Path.home())
        return cls(home, None if repository is None else str(repository.absolute()))

    def expand(self, path: str) -> str:
        for mark, place in (("~", self.home), ("{repo}", self.repository)):
            if place is not None and (path == mark or path.startswith(f"{mark}/")):
                return os.path.normpath(place + path.removeprefix(mark))
        return path


def _texts(value: Any) -> Sequence[str]:
    return tuple(map(str, value or ()))
