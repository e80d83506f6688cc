"""One source of configuration as a layer: flat, checked against the schema, with the origin of each value.

Every layer is checked separately, so that a message can name the file, the line and the key, and all problems are
reported together. `load.py` finds the files and knows their precedence.
"""

import ipaddress
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args, get_origin
from urllib.parse import urlsplit

from pydantic import BaseModel, ValidationError, create_model

from fleet.config.schema import Config
from fleet.config.toml import key_lines, parse_toml, read_text, shown_key
from fleet.core.base.ids import suggestion
from fleet.core.base.output import parse_json
from fleet.features.parts import load_part
from fleet.features.table import FEATURES
from fleet.ports.settings import Section

Key = tuple[str, ...]

FLAG = "flag"
"""The origin of values from the command line."""
LARGEST_FILE = 1024 * 1024  # bytes
_SHOWN = 60  # characters of a wrong value
_TRUTH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_VARIABLE = re.compile(r"FLEET_([A-Z]+)_.")
_EXPECTED = {
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "tuple_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "finite_number": "must be a finite number",
    "string_too_short": "must not be empty",
    "too_short": "must not be empty",
    "string_pattern_mismatch": "does not have the required form",
}
_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}


SECTIONS: dict[str, Any] = {
    name: load_part(place) for feature in FEATURES.values() for name, place in feature.sections.items()
}
"""The sections of features by name, or dictionaries of sections."""
_ADDED: Any = {name: (kind, {} if get_origin(kind) is dict else ...) for name, kind in SECTIONS.items()}
WHOLE: type[Config] = create_model("Whole", __base__=Config, **_ADDED)
"""The configuration with the sections of all features."""


class ConfigProblem(NamedTuple):
    """A problem with one key. Sorts by line."""

    line: int
    text: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.text} ({self.hint})" if self.hint else self.text


@dataclass(frozen=True, slots=True)
class Layer:
    """The values that one source sets."""

    name: str
    """For messages: a file, or `command line`."""
    values: Mapping[Key, object]
    origins: Mapping[Key, str]
    """The origin of each value, for `fleet config show --origin`."""
    text: str = ""
    """The text of the file, to find line numbers."""

    def problem(self, key: Key, message: str, hint: str = "") -> ConfigProblem:
        """A problem with one key of this layer."""
        lines = key_lines(self.text)
        line = next((lines[key[:length]] for length in range(len(key), 0, -1) if key[:length] in lines), 0)
        place = f"{self.name}:{line}" if line else self.origins.get(key, self.name)
        return ConfigProblem(line, f"{self.name if place == FLAG else place}: {shown_key(key)} {message}", hint)


def file_layer(path: Path, *, origin: str | None = None) -> Layer:
    """The layer of a file. Raises `UsageError` if it can't be read or is not TOML."""
    text = read_text(path, largest=LARGEST_FILE)
    values = dict(flat(parse_toml(text, name=str(path))))
    return Layer(str(path), values, dict.fromkeys(values, origin or str(path)), text)


def flag_layer(flags: Mapping[str, object]) -> Layer:
    """Flags by dotted key. Text is converted to the type of the key. None is ignored."""
    values: dict[Key, object] = {}
    for dotted, value in flags.items():
        key = tuple(dotted.split("."))
        if value is not None:
            values.update(flat(_from_text(value, _type_at(key)) if isinstance(value, str) else value, key))
    return Layer("command line", values, dict.fromkeys(values, FLAG))


def environment_layer(environ: Mapping[str, str], workers: Collection[str]) -> tuple[Layer, tuple[ConfigProblem, ...]]:
    """The variables `FLEET_<SECTION>_<KEY>`, and problems with their names. Empty variables are ignored."""
    values: dict[Key, object] = {}
    origins: dict[Key, str] = {}
    problems: list[ConfigProblem] = []
    known = _variables(workers)
    for name, text in sorted(environ.items()):
        section = _VARIABLE.match(name)
        if not section or section[1].lower() not in WHOLE.model_fields:
            continue
        if name not in known:
            problems.append(ConfigProblem(0, f"{name}: not a key of [{section[1].lower()}]", suggestion(name, known)))
        elif text.strip():
            for key, value in flat(_from_text(text, _type_at(known[name])), known[name]):
                values[key], origins[key] = value, name
    return Layer("environment", values, origins), tuple(problems)


def flat(value: object, key: Key = ()) -> Iterator[tuple[Key, object]]:
    """Every value below `value` with its full key. An empty table is a value: `[workers.quick]` adds a worker."""
    if isinstance(value, Mapping) and (value or not key):
        for name, item in value.items():
            yield from flat(item, (*key, str(name)))
    else:
        yield key, value


def nested(values: Iterable[tuple[Key, object]]) -> dict[str, Any]:
    """Rebuild the tree from the output of `flat`."""
    tree: dict[str, Any] = {}
    for key, value in values:
        table = tree
        for name in key[:-1]:
            table = table.setdefault(name, {})
        if value == {}:
            table.setdefault(key[-1], {})
        else:
            table[key[-1]] = value
    return tree


def layer_problems(layer: Layer) -> tuple[ConfigProblem, ...]:
    """The wrong keys and values of one layer. Missing keys may be set by another layer."""
    errors = _errors(nested(layer.values.items()))
    return tuple(layer.problem(*_explain(error)) for error in errors if error["type"] != "missing")


def missing_keys(tree: Mapping[str, Any]) -> tuple[Key, ...]:
    """The required keys that no layer sets."""
    return tuple(tuple(map(str, error["loc"])) for error in _errors(tree) if error["type"] == "missing")


def _errors(tree: Mapping[str, Any]) -> list[Any]:
    try:
        WHOLE.model_validate(tree)
    except ValidationError as error:
        return list(error.errors(include_url=False))
    return []


def _explain(error: Mapping[str, Any]) -> tuple[Key, str, str]:
    """Return the key, the message and the hint for an error of pydantic."""
    location = tuple(error["loc"])
    key = tuple(str(part) for part in location if part != "[key]" and not isinstance(part, int))
    kind, context = str(error["type"]), error.get("ctx", {})
    if kind == "extra_forbidden":
        return key, *_unknown_key(key)
    if kind == "literal_error":
        hint = suggestion(str(error["input"]), re.findall(r"'([^']*)'", context["expected"]))
        return key, f"must be {context['expected']}, not {shown_value(error['input'])}", hint
    if kind in _BOUNDS:
        bound, words = _BOUNDS[kind]
        expected = f"must be {words} {context[bound]:,g}"
    elif kind == "value_error":
        expected = str(context["error"])
    else:
        expected = _EXPECTED.get(kind, str(error["msg"]))
    if "[key]" in location:
        return key, f"has a name that {expected}", ""
    item = next((f"item {part + 1} " for part in location if isinstance(part, int)), "")
    wrong = "" if kind.endswith("too_short") else f", not {shown_value(error['input'])}"
    return key, f"{item}{expected}{wrong}", ""


def _unknown_key(key: Key) -> tuple[str, str]:
    table = _type_at(key[:-1])
    names = sorted(table.model_fields) if isinstance(table, type) and issubclass(table, BaseModel) else []
    near = suggestion(key[-1], names)
    if len(key) == 1:
        return "is not a section", near or f"the sections are {', '.join(names)}"
    return "is not a key", near or f"the keys of [{shown_key(key[:-1])}] are {', '.join(names)}"


def shown_value(value: object) -> str:
    """A wrong value for a message, shortened and without control characters."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a table"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _variables(workers: Collection[str]) -> dict[str, Key]:
    """The key of each variable, by the variable's name."""
    keys: list[Key] = []
    for section, info in WHOLE.model_fields.items():
        table = _plain(info.annotation)
        if isinstance(table, type) and issubclass(table, BaseModel):
            keys += ((section, name) for name in table.model_fields)
        elif section == "workers":
            item = _type_at((section, ""))
            keys += ((section, worker, name) for worker in workers for name in getattr(item, "model_fields", ()))
    return {"FLEET_" + "_".join(key).upper().replace("-", "_").replace(".", "_"): key for key in keys}


def _type_at(key: Key) -> Any:
    """The type of the value at a key; None if there is no such key."""
    current: Any = WHOLE
    for name in key:
        if isinstance(current, type) and issubclass(current, BaseModel):
            info = current.model_fields.get(name)
            current = _plain(info.annotation) if info else None
        elif get_origin(current) is dict:
            current = _plain(get_args(current)[1])
        else:
            return None
    return current


def _plain(annotation: Any) -> Any:
    """A type without its `Annotated` metadata and without `| None`."""
    annotation = getattr(annotation, "__origin__", annotation) if hasattr(annotation, "__metadata__") else annotation
    members = [member for member in get_args(annotation) if member is not NoneType]
    return _plain(members[0]) if NoneType in get_args(annotation) else annotation


def _from_text(text: str, expected: Any) -> object:
    """Convert the text of a flag or variable to the expected type. Other text is kept and fails validation later."""
    if expected is str or expected is None or get_origin(expected) is Literal:
        return text
    if expected is bool:
        return _TRUTH.get(text.strip().lower(), text)
    try:
        value: object = parse_json(text)
    except ValueError:
        value = text
    if get_origin(expected) is tuple and not isinstance(value, list):
        return [part.strip() for part in text.split(",") if part.strip()]
    return value


# ---- trust -----------------------------------------------------------------------------------------------------------
# Keys that a repository's fleet.toml must not set: its author is not the user who runs fleet.
#
# The user owns the sandbox, the keys, the money and the paths outside the repository.


_INSTEAD = "set it in your own configuration file, in a file for --config, or with an option"
_REFUSED: Mapping[Key, str] = {
    ("box", "sandbox"): "controls the protection of your machine",
    ("box", "syscall_filter"): "controls the protection of your machine",
    ("box", "memory_mb"): "controls the memory that workers may use",
    ("box", "disk_mb"): "controls the disk space that workers may use",
    ("box", "tool_chains"): "gives workers access to folders in your home",
    ("box", "labels"): "controls the work that is sent to your machine",
    ("models", "api_key_env"): "selects the secret that is sent",
    ("models", "service"): "selects the credentials that are used",
    ("models", "region"): "selects the region that receives your code",
    ("models", "project"): "selects the project that pays",
    ("models", "auth"): "controls how your key is sent",
    ("models", "headers"): "selects the secrets that are sent",
    ("models", "prices"): "changes how your budget is counted",
    ("models", "without"): "changes the cost of your calls",
    ("models", "model_without"): "changes the cost of your calls",
    ("git", "sign"): "signs in your name",
    ("git", "signing_key"): "selects one of your keys",
    ("git", "signing_program"): "selects a program that runs as you",
    ("git", "sign_off"): "signs off in your name",
    ("git", "taker"): "sets your identity",
    ("run", "not_between"): "controls when your machine works",
    ("review",): "controls which subtasks start without your approval",
    ("state", "dir"): "selects where files are written on your machine",
    ("state", "max_gb"): "controls the disk space that fleet may use",
}


def _section(kind: Any) -> type[Section]:
    section: type[Section] = get_args(kind)[1] if get_origin(kind) is dict else kind
    return section


_REFUSED_OF_FEATURES: Mapping[Key, str] = {
    (name, key) if key else (name,): reason
    for name, kind in SECTIONS.items()
    for key, reason in _section(kind).refused.items()
}
_REFUSED_OF_WORKERS: Mapping[str, str] = {
    "command": "selects the program of a worker, which gets your access",
    "prompt": "instructs a worker in your name",
    "mcp": "gives a worker tools outside the sandbox",
    "hosts": "selects the hosts that a worker can reach",
    "environment": "sets variables for a worker's program",
    "pass_environment": "passes your secrets to a worker",
    "read_only": "gives a worker access to files on your machine",
    "path": "selects the programs that a worker runs",
}
"""Keys of `[workers.NAME]`. One key could leak the access that another gives, so the user sets all of them."""
_PRIVILEGES = frozenset({*_REFUSED_OF_WORKERS, "network"})
_BUDGETS = tuple(("run", f"budget_{unit}") for unit in ("dollars", "minutes", "tokens", "attempts"))


def trust_problems(layer: Layer, repository: Path, below: Mapping[Key, object]) -> Iterator[ConfigProblem]:
    """The keys that a repository's layer must not set. `below` contains the values of the weaker layers."""
    for key, value in layer.values.items():
        if reason := _reason(key, value, repository, below):
            yield layer.problem(key, f"can't be set by a repository: it {reason}", _INSTEAD)


def is_loopback(url: str) -> bool:
    """Whether a URL leads to this machine."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _reason(key: Key, value: object, repository: Path, below: Mapping[Key, object]) -> str | None:
    """Return the reason why a repository must not set a key to a value; None if it may."""
    for length in range(1, len(key) + 1):
        if reason := _REFUSED.get(key[:length]) or _REFUSED_OF_FEATURES.get(key[:length]):
            return reason
    if key[0] == "workers" and len(key) > 2:  # noqa: PLR2004 - workers.NAME.key
        if reason := _REFUSED_OF_WORKERS.get(key[2]):
            return reason
        if key[2] in {"kind", "tools"} and _has_privileges(key[:2], below):
            return "changes a worker that you gave more access than others"
    if key[0] in {"box", "workers"} and key[-1] == "network" and value is True:
        return "gives workers network access"
    if key == ("worktrees", "setup_network") and value != "none":
        return "gives its setup command network access"
    if key == ("models", "base_url") and not is_loopback(str(value)):
        return f"sends your key and code to {shown_value(value)}, which is not an address of this machine"
    if key == ("run", "review") and value is False and below.get(key) is True:
        return "skips the plan review that you require"
    if key in _BUDGETS:
        return _raised_limit(value, below.get(key))
    if key in {("box", "read_only"), ("box", "path")} and isinstance(value, list):
        return _path_outside(value, repository)
    return None


def _has_privileges(worker: Key, below: Mapping[Key, object]) -> bool:
    """Whether the user gave this worker access that a repository can't give."""
    return any(
        key[:2] == worker and len(key) > len(worker) and key[2] in _PRIVILEGES and value for key, value in below.items()
    )


def _raised_limit(value: object, yours: object) -> str | None:
    if isinstance(yours, int | float) and isinstance(value, int | float) and value > yours:
        return f"raises your limit of {yours:g} to {value:g}"
    return None


def _path_outside(paths: list[object], repository: Path) -> str | None:
    outside = next((path for path in paths if not _is_inside(str(path), repository)), None)
    if outside is None:
        return None
    return f"shows workers {shown_value(outside)}, which is not below {{repo}} or is in its .git"


def _is_inside(path: str, repository: Path) -> bool:
    """Whether a path leads strictly below the repository and not into its `.git`, links followed."""
    if not path.startswith("{repo}/"):
        return False
    root = os.path.realpath(repository)
    real = os.path.realpath(os.path.join(root, path.removeprefix("{repo}/")))  # noqa: PTH118 - realpath decides, as text
    if os.path.commonpath((root, real)) != root or real == root:
        return False
    return not any(part.lower() == ".git" for part in Path(real).relative_to(root).parts)
