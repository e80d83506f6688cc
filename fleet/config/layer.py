"""One source of configuration as a layer: flat, checked against the shape, each value knowing where it stands.

Every layer is checked by itself, so that a message names the file, the line and the key that is wrong, and all problems
come at once. Knows nothing of precedence, nor of which files there are (that is `config.py`).
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel, ValidationError

from fleet.core.nearest import did_you_mean
from fleet.settings import Config
from fleet.toml import key_lines, parse_toml, read_text, shown_key

Key = tuple[str, ...]

FLAG = "flag"
"""The origin of what the command line sets."""
LARGEST_FILE = 1024 * 1024  # bytes; the complete file has eight thousand
_SHOWN = 60  # characters of a wrong value
_TRUTH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_VARIABLE = re.compile(r"FLEET_([A-Z]+)_.")
_WANTED = {
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
    "string_pattern_mismatch": "does not have the form it needs",
}
_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}


class Problem(NamedTuple):
    """Sorts by where it stands."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Layer:
    """What one source sets."""

    name: str
    """For messages: a file, or `command line`."""
    values: Mapping[Key, object]
    origins: Mapping[Key, str]
    """What `fleet config show --origin` prints for each value."""
    text: str = ""
    """The file, to find lines in."""

    def problem(self, key: Key, message: str) -> Problem:
        """One line about one key of this layer."""
        line = self._line(key)
        place = f"{self.name}:{line}" if line else self.origins.get(key, self.name)
        return Problem(line, f"{self.name if place == FLAG else place}: {shown_key(key)} {message}")

    def _line(self, key: Key) -> int:
        lines = key_lines(self.text) if self.text else {}
        return next((lines[key[:length]] for length in range(len(key), 0, -1) if key[:length] in lines), 0)


def file_layer(path: Path, *, origin: str | None = None) -> Layer:
    """A file's layer. Raises `UsageError` where it is unreadable or no TOML."""
    text = read_text(path, largest=LARGEST_FILE)
    values = dict(flat(parse_toml(text, name=str(path))))
    return Layer(str(path), values, dict.fromkeys(values, origin or str(path)), text)


def flag_layer(flags: Mapping[str, object]) -> Layer:
    """Flags by dotted key; text is read as the key's type wants it, and None is a flag that was not given."""
    values: dict[Key, object] = {}
    for dotted, value in flags.items():
        key = tuple(dotted.split("."))
        if value is not None:
            values.update(flat(_from_text(value, _type_at(key)) if isinstance(value, str) else value, key))
    return Layer("command line", values, dict.fromkeys(values, FLAG))


def environment_layer(environ: Mapping[str, str], workers: Collection[str]) -> tuple[Layer, tuple[Problem, ...]]:
    """`FLEET_<SECTION>_<KEY>`, and what is wrong with their names. An empty variable is as good as none."""
    values: dict[Key, object] = {}
    origins: dict[Key, str] = {}
    problems: list[Problem] = []
    known = _variables(workers)
    for name, text in sorted(environ.items()):
        section = _VARIABLE.match(name)
        if not section or section[1].lower() not in Config.model_fields:
            continue
        if name not in known:
            problems.append(Problem(0, f"{name}: sets no key of [{section[1].lower()}]{did_you_mean(name, known)}"))
        elif text.strip():
            for key, value in flat(_from_text(text, _type_at(known[name])), known[name]):
                values[key], origins[key] = value, name
    return Layer("environment", values, origins), tuple(problems)


def flat(value: object, key: Key = ()) -> Iterator[tuple[Key, object]]:
    """Every value below `value` with its whole key. An empty table is a value: `[workers.quick]` says something."""
    if isinstance(value, Mapping) and (value or not key):
        for name, item in value.items():
            yield from flat(item, (*key, str(name)))
    else:
        yield key, value


def nested(values: Iterable[tuple[Key, object]]) -> dict[str, Any]:
    """The tree that `flat` came from."""
    tree: dict[str, Any] = {}
    for key, value in values:
        table = tree
        for name in key[:-1]:
            table = table.setdefault(name, {})
        if value != {} or not isinstance(value, dict):
            table[key[-1]] = value
        else:
            table.setdefault(key[-1], {})
    return tree


def layer_problems(layer: Layer) -> tuple[Problem, ...]:
    """What is wrong with the keys and values of one layer. What is missing another layer may bring."""
    wrong = _errors(nested(layer.values.items()))
    return tuple(layer.problem(*_said(error)) for error in wrong if error["type"] != "missing")


def missing_keys(tree: Mapping[str, Any]) -> tuple[Key, ...]:
    """What is still missing when all layers stand on each other."""
    return tuple(tuple(map(str, error["loc"])) for error in _errors(tree) if error["type"] == "missing")


def _errors(tree: Mapping[str, Any]) -> list[Any]:
    try:
        Config.model_validate(tree)
    except ValidationError as error:
        return list(error.errors(include_url=False))
    return []


def _said(error: Mapping[str, Any]) -> tuple[Key, str]:
    location = tuple(error["loc"])
    is_name = "[key]" in location
    key = tuple(str(part) for part in location if part != "[key]" and not isinstance(part, int))
    kind, context = str(error["type"]), error.get("ctx", {})
    if kind == "extra_forbidden":
        return key, _unknown(key)
    index = next((f"item {part + 1} " for part in location if isinstance(part, int)), "")
    if kind in _BOUNDS:
        bound, words = _BOUNDS[kind]
        wanted = f"must be {words} {context[bound]:,g}"
    elif kind == "literal_error":
        return key, f"must be {context['expected']}, not {shown_value(error['input'])}" + _near(error["input"], context)
    elif kind == "value_error":
        wanted = str(context["error"])
    else:
        wanted = _WANTED.get(kind, str(error["msg"]))
    if is_name:
        return key, f"has a name that {wanted}"
    if kind.endswith("too_short"):
        return key, f"{index}{wanted}"
    return key, f"{index}{wanted}, not {shown_value(error['input'])}"


def _unknown(key: Key) -> str:
    table = _type_at(key[:-1])
    names = sorted(table.model_fields) if isinstance(table, type) and issubclass(table, BaseModel) else []
    near = did_you_mean(key[-1], names)
    if len(key) == 1:
        return f"is no section{near or '; there are ' + ', '.join(names)}"
    return f"is no key{near or f'; [{shown_key(key[:-1])}] has ' + ', '.join(names)}"


def _near(value: object, context: Mapping[str, Any]) -> str:
    return did_you_mean(str(value), str(context["expected"]).replace(" or ", ", ").replace("'", "").split(", "))


def shown_value(value: object) -> str:
    """A wrong value for a message: short, and no control character in it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a table"
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _variables(workers: Collection[str]) -> dict[str, Key]:
    """The name of each variable that sets something."""
    keys: list[Key] = []
    for section, field in Config.model_fields.items():
        table = _plain(field.annotation)
        if isinstance(table, type) and issubclass(table, BaseModel):
            keys += ((section, name) for name in table.model_fields)
        else:
            item = _type_at((section, ""))
            keys += ((section, worker, name) for worker in workers for name in getattr(item, "model_fields", ()))
    return {"FLEET_" + "_".join(key).upper().replace("-", "_").replace(".", "_"): key for key in keys}


def _type_at(key: Key) -> Any:
    """What type stands at a key; None where no key is."""
    here: Any = Config
    for name in key:
        if isinstance(here, type) and issubclass(here, BaseModel):
            field = here.model_fields.get(name)
            here = _plain(field.annotation) if field else None
        elif get_origin(here) is dict:
            here = _plain(get_args(here)[1])
        else:
            return None
    return here


def _plain(annotation: Any) -> Any:
    """A type without what is annotated to it, and without `| None`."""
    annotation = getattr(annotation, "__origin__", annotation) if hasattr(annotation, "__metadata__") else annotation
    members = [member for member in get_args(annotation) if member is not NoneType]
    return _plain(members[0]) if NoneType in get_args(annotation) else annotation


def _from_text(text: str, wanted: Any) -> object:
    """A flag's or variable's text as the key's type wants it; what it can't be stays text and is refused as such."""
    if wanted is str or wanted is None or get_origin(wanted) is Literal:
        return text
    if wanted is bool:
        return _TRUTH.get(text.strip().lower(), text)
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    if get_origin(wanted) is tuple and not isinstance(value, list):
        return [part.strip() for part in text.split(",") if part.strip()]
    return value
