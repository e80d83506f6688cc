"""Loads the configuration: flags, environment and files as one frozen `Config`, with the origin of each value.

Precedence: flag > FLEET_* > --config > the repository's fleet.toml > the user's file > the defaults in `config.toml`.
`fleet/app/wiring.py` gives each adapter its part. Only this module knows the paths of configuration files.
"""

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal
from urllib.parse import urlsplit

import platformdirs

from fleet.config.layer import (
    FLAG,
    WHOLE,
    ConfigProblem,
    Key,
    Layer,
    environment_layer,
    file_layer,
    flag_layer,
    flat,
    layer_problems,
    missing_keys,
    nested,
    shown_value,
    trust_problems,
)
from fleet.config.schema import GATE, Config
from fleet.config.toml import dump_toml, key_lines, parse_toml, read_text, read_toml, shown_key
from fleet.core.plans.limits import RunOverrides
from fleet.errors import UsageError

# ---- choices ---------------------------------------------------------------------------------------------------------
# The choices for one run on the command line and in the environment, so that a resumed run keeps them.
#
# The journal has only the key of a value that may contain a secret, never the value.


def choices(config_file: Path | None, flags: Mapping[Key, object], environment: Mapping[Key, object]) -> RunOverrides:
    """The choices that a journal may contain. The state directory is not a choice of one run."""
    kept = [
        {key: value for key, value in values.items() if _may_be_kept(key, value)} for values in (flags, environment)
    ]
    return RunOverrides(
        config_file=str(config_file.absolute()) if config_file is not None else None,
        flags=nested(kept[0].items()),
        environment=nested(kept[1].items()),
        withheld={
            **{shown_key(key): "environment" for key, value in environment.items() if _may_hold_secret(key, value)},
            **{shown_key(key): "flag" for key, value in flags.items() if _may_hold_secret(key, value)},
        },
    )


def kept_file(before: RunOverrides) -> Path | None:
    """The `--config` file that a run was started with. Raises `UsageError` if it is gone."""
    if before.config_file is None or Path(before.config_file).is_file():
        return Path(before.config_file) if before.config_file is not None else None
    raise UsageError(
        f"the run was started with --config {before.config_file}, which no longer exists",
        hint="use --config FILE to name another file",
    )


def require_secrets(before: RunOverrides, *, flags: Mapping[Key, object], environment: Mapping[Key, object]) -> None:
    """Raise `UsageError` if a secret value is not given again. A variable can't replace a flag."""
    given = {
        "flag": {shown_key(key) for key in flags},
        "environment": {shown_key(key) for key in (*flags, *environment)},
    }
    lacking = sorted(key for key, place in before.withheld.items() if key not in given[place])
    if lacking:
        hint = "set it again like at the start of the run, with an option or a FLEET_* variable"
        raise UsageError(f"{', '.join(lacking)} may contain a secret and is not stored with the run", hint=hint)


def kept_layer(tables: Mapping[str, Any]) -> Layer:
    """The choices of an earlier start as a layer. Their origin is `flag`."""
    values = dict(flat(tables)) if tables else {}
    return Layer("the options that the run was started with", values, dict.fromkeys(values, FLAG))


def _may_be_kept(key: Key, value: object) -> bool:
    return key[0] != "state" and not _may_hold_secret(key, value)


def _may_hold_secret(key: Key, value: object) -> bool:
    if key[-1] == "base_url":
        parts = urlsplit(str(value))
        return parts.username is not None or parts.password is not None
    return "environment" in key or "headers" in key


# ---- load ------------------------------------------------------------------------------------------------------------


REPOSITORY_FILE = "fleet.toml"
NO_CHOICES = RunOverrides()
_PATHS = frozenset({"read_only", "path"})
_STATE_DIR: Key = ("state", "dir")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, and the origin of each value."""

    config: Config
    origin: dict[str, str]
    """By dotted key: `flag`, the variable, the file, or `default`."""
    choices: RunOverrides = NO_CHOICES
    """The values from the command line and the environment, for the run that is started with them."""


def defaults_file() -> Path:
    """The file with the commented defaults: in an installed package, or at the project's root."""
    package = Path(__file__).parents[1]
    packaged = package / "config.toml"
    return packaged if packaged.is_file() else package.parent / "config.toml"


def _of_sections(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The tables without those of features that are not installed."""
    return {name: table for name, table in tables.items() if name in WHOLE.model_fields}


def default_layer() -> Layer:
    layer = file_layer(defaults_file(), origin="default")
    return replace(layer, values=dict(flat(_of_sections(nested(layer.values.items())))))


@cache
def default_config() -> Config:
    """The defaults. `state.dir` is empty in them: `load_config` sets the system's default."""
    return WHOLE.model_validate(_of_sections(read_toml(defaults_file())))


def user_file_path() -> Path:
    """The path of the user's configuration file on this system."""
    return platformdirs.user_config_path("fleet") / "config.toml"


def load_config(
    *,
    environ: Mapping[str, str],
    flags: Mapping[str, object] = MappingProxyType({}),
    config_file: Path | None = None,
    repository: Path | None = None,
    user_file: Path | Literal["default"] | None = "default",
    before: RunOverrides = NO_CHOICES,
) -> Loaded:
    """Merge all sources. `repository` is the root of the target. With `user_file` None, no user file is read.

    `before` contains the choices from the start of a run. Flags and variables override them. Raises `UsageError` with
    every problem of every source.
    """
    reader = _Reader(environ.get("HOME") or str(Path.home()), repository)
    reader.take(default_layer())
    users = user_file_path() if user_file == "default" else user_file
    if users is not None and os.path.lexists(users):
        reader.take_file(users)
    if repository is not None and os.path.lexists(repository / REPOSITORY_FILE):
        reader.take_file(repository / REPOSITORY_FILE, repository=repository)
    config_file = config_file if config_file is not None else kept_file(before)
    if config_file is not None:
        reader.take_file(config_file)
    environment, problems = environment_layer(environ, reader.workers())
    given = flag_layer(flags)
    kept_environment, kept_flags = (kept_layer(values) for values in (before.environment, before.flags))
    reader.take(kept_environment)
    reader.take(environment, problems)
    reader.take(kept_flags)
    reader.take(given)
    require_secrets(before, flags=given.values, environment=environment.values)
    chosen = {**kept_environment.values, **environment.values}
    return replace(reader.merged(), choices=choices(config_file, {**kept_flags.values, **given.values}, chosen))


class _Reader:
    """Collects layers, the weakest first, and their problems."""

    def __init__(self, home: str, repository: Path | None) -> None:
        self._layers: list[Layer] = []
        self._problems: list[ConfigProblem] = []
        self._places = {"~": home} | ({} if repository is None else {"{repo}": str(repository.absolute())})

    def take(self, layer: Layer, problems: Iterable[ConfigProblem] = ()) -> None:
        self._problems += sorted((*problems, *layer_problems(layer)))
        self._layers.append(layer)

    def take_file(self, path: Path, *, origin: str | None = None, repository: Path | None = None) -> None:
        """Take a file. For the file of a `repository`, reject keys that its author must not set."""
        if repository is not None and not path.resolve().is_relative_to(repository.resolve()):
            hint = f"to use it, name it: --config {path.resolve()}"
            self._problems.append(ConfigProblem(0, f"{path}: links to a file outside the repository", hint))
            return
        try:
            layer = file_layer(path, origin=origin)
        except UsageError as error:
            self._problems.append(ConfigProblem(0, error.message, error.hint))
        else:
            self.take(layer, trust_problems(layer, repository, self._values()) if repository is not None else ())

    def workers(self) -> list[str]:
        """The names of all configured workers."""
        return list(dict.fromkeys(key[1] for key in self._values() if key[0] == "workers" and len(key) > 1))

    def merged(self) -> Loaded:
        """Merge all layers and resolve their paths. Raises `UsageError` with every problem."""
        self._stop_on_problems()
        values = self._worker_defaults() | self._values()
        for key in missing_keys(nested(values.items())):
            self._problems.append(self._strongest_with(key[:-1]).problem(key, "is missing"))
        self._problems += self._unknown_checks(values)
        self._stop_on_problems()
        for key in filter(_is_path_list, values):
            values[key] = [self._resolve(key, path) for path in values[key]]
        values[_STATE_DIR] = self._state_dir(values[_STATE_DIR])
        self._stop_on_problems()
        config = WHOLE.model_validate(nested(values.items()))
        origins = {key: origin for layer in self._layers for key, origin in layer.origins.items()}
        return Loaded(config, {shown_key(key): origins.get(key, "default") for key, _ in flat(config.model_dump())})

    def _unknown_checks(self, values: Mapping[Key, Any]) -> Iterator[ConfigProblem]:
        """The entries of `[checks.tests]` for checks that do not exist."""
        for key in values:
            if key[:-1] == ("checks", "tests") and key[-1] != GATE and ("checks", "named", key[-1]) not in values:
                hint = f"use {GATE!r} or a name from [checks.named]"
                yield self._strongest_with(key).problem(key, "does not name a check", hint)

    def _values(self) -> dict[Key, Any]:
        return {key: value for layer in self._layers for key, value in layer.values.items()}

    def _worker_defaults(self) -> dict[Key, Any]:
        """The defaults of every worker: those of `[workers.coder]`."""
        coder = {key[2:]: value for key, value in self._layers[0].values.items() if key[:2] == ("workers", "coder")}
        return {("workers", name, *key): value for name in self.workers() for key, value in coder.items()}

    def _stop_on_problems(self) -> None:
        problems = list(dict.fromkeys(self._problems))
        if len(problems) == 1:
            raise UsageError(problems[0].text, hint=problems[0].hint)
        if problems:
            hints = {problem.hint for problem in problems}
            shared = hints.pop() if len(hints) == 1 else ""
            lines = "".join(f"\n  {problem.text if shared else problem}" for problem in problems)
            raise UsageError(f"{len(problems)} problems in the configuration:{lines}", hint=shared)

    def _strongest_with(self, key: Key) -> Layer:
        return next(layer for layer in reversed(self._layers) if any(at[: len(key)] == key for at in layer.values))

    def _resolve(self, key: Key, path: str) -> str:
        resolved = self._expand(path)
        if not resolved.startswith(("/", "{repo}")):
            message = f"must be absolute or start with ~/ or {{repo}}, not {shown_value(path)}"
            self._problems.append(self._strongest_with(key).problem(key, message))
        return resolved

    def _expand(self, path: str) -> str:
        """The path with `~` and `{repo}` expanded."""
        for mark, place in self._places.items():
            if path == mark or path.startswith(f"{mark}/"):
                return os.path.normpath(place + path.removeprefix(mark))
        return path

    def _state_dir(self, path: str) -> str:
        if not path:
            return str(platformdirs.user_state_path("fleet"))
        layer = self._strongest_with(_STATE_DIR)
        if layer.origins.get(_STATE_DIR) == FLAG and not path.startswith(("~", "{repo}")):
            path = str(Path(path).absolute())  # a path on the command line is relative to the current folder
        resolved = self._resolve(_STATE_DIR, path)
        if resolved.startswith("{repo}"):
            message = "starts with {repo}, but the current folder is not in a repository"
            self._problems.append(layer.problem(_STATE_DIR, message))
        return resolved


def _is_path_list(key: Key) -> bool:
    """Whether it is a key of `[box]` or of `[workers.NAME]` that lists paths."""
    return (key[0], len(key)) in {("box", 2), ("workers", 3)} and key[-1] in _PATHS


# ---- user file -------------------------------------------------------------------------------------------------------
# Sets keys in the user's configuration file and keeps the rest of it.


LONGEST_VALUE = 40  # lines of a value that is replaced


def set_in_file(path: Path, values: Mapping[Key, object]) -> None:
    """Set keys in a configuration file, which need not exist. Raises `UsageError` if the user must do it."""
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
        os.replace(temporary, path)  # noqa: PTH105 - atomic: a reader sees the complete file
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


def with_key(text: str, key: Key, value: object, *, name: str) -> str:
    """The text with a key set. Raises `UsageError` if the form of the file does not allow that."""
    wanted = _set(parse_toml(text, name=name), key, value)
    for changed in _attempts(text, key, value):
        try:
            if parse_toml(changed, name=name) == wanted:
                return changed
        except UsageError:
            continue
    line = dump_toml(nested([(key, value)])).strip()
    raise UsageError(f"{name}: can't set {shown_key(key)} automatically", hint=f"add it to the file:\n{line}")


def _attempts(text: str, key: Key, value: object) -> Iterator[str]:
    """Possible texts with the key set. Some are not valid for the form of the file."""
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
