"""Plans with parameters: what one may set, and the plan as a document with the values filled in.

A placeholder is `{set:NAME}` in any string of the plan. Values come from a command line that a script may have put
together, so each is fitted to where it lands: a command keeps its words, a path names no more than its author meant
(docs/decisions, "A plan's parameters are filled in before it is read").
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field, JsonValue

from fleet.core.nearest import did_you_mean
from fleet.core.plan import Shape
from fleet.core.planfile import parse
from fleet.core.quoting import fitted
from fleet.core.validate import Problem

TABLE = "parameters"
PLACEHOLDER = re.compile(r"\{set:([A-Za-z_][\w-]*)\}", re.ASCII)
LONGEST_VALUE = 4_000  # characters
LONGEST_COMMAND = 10_000  # characters of a command with placeholders: it is read again for each of them
_NAME = re.compile(r"[A-Za-z_][\w-]{0,63}", re.ASCII)
_WIDER = re.compile(r"[*?\[\]]")
_ARTICLE = {"integer": "no integer", "number": "no number", "boolean": "neither true nor false"}

Place = tuple[str | int, ...]
Value = str | int | float | bool


class Parameter(Shape):
    """One thing that may be set."""

    type: Literal["string", "integer", "number", "boolean", "choice"] = "string"
    """What a value is; without `type` a text."""
    help: str = ""
    """What whoever sets it should know."""
    default: Value | None = Field(default=None, description="What holds where nothing is set; without it, one must.")
    choices: tuple[str, ...] = Field(default=(), description="Of a choice: what there is to choose from.")

    @property
    def kind(self) -> str:
        """In words."""
        return f"one of {', '.join(self.choices)}" if self.type == "choice" else self.type


@dataclass(frozen=True, slots=True)
class Filled:
    """A plan as data, without parameters, and what they were set to."""

    document: Mapping[str, object]
    values: Mapping[str, JsonValue] = field(default_factory=dict)


def declared(data: Mapping[str, object]) -> dict[str, Parameter] | tuple[Problem, ...]:
    """The parameters that a document declares."""
    table = data.get(TABLE)
    if table is None:
        return {}
    if not isinstance(table, Mapping):
        return (Problem(TABLE, "is a table: [parameters.NAME] with type, help, default"),)
    found: dict[str, Parameter] = {}
    problems: list[Problem] = []
    for name, said in table.items():
        place = f"{TABLE}.{name}"
        if not _NAME.fullmatch(str(name)):
            problems.append(Problem(place, "1 to 64 letters, digits, dashes or underscores, a letter first"))
            continue
        read = parse(Parameter, said, at=place)
        if isinstance(read, Parameter):
            found[str(name)] = read
            problems += _own_problems(read, place)
        else:
            problems += read
    return tuple(problems) or found


def _own_problems(parameter: Parameter, place: str) -> Iterator[Problem]:
    if (parameter.type == "choice") != bool(parameter.choices):
        yield Problem(f"{place}.choices", "belong to type 'choice', which needs them")
    elif parameter.default is not None and (wrong := _mismatch(parameter, parameter.default)):
        yield Problem(f"{place}.default", wrong)


def fill(data: Mapping[str, object], given: Mapping[str, str]) -> Filled | tuple[Problem, ...]:
    """The document with its values: those given as text, and the defaults of the others. Every problem at once."""
    parameters = declared(data)
    if isinstance(parameters, tuple):
        return parameters
    body = {key: value for key, value in data.items() if key != TABLE}
    if TABLE not in data and not given:
        return Filled(body)  # what declares nothing is taken as it stands
    values, problems = _values(parameters, given)
    filler = _Filler(parameters, values)
    document = {key: filler.filled(value, (key,)) for key, value in body.items()}
    problems += filler.problems
    return tuple(dict.fromkeys(problems)) or Filled(document, values)


def _values(
    parameters: Mapping[str, Parameter], given: Mapping[str, str]
) -> tuple[dict[str, JsonValue], list[Problem]]:
    values: dict[str, JsonValue] = {}
    problems = [
        Problem(f"--set {name}", f"the plan has no such parameter{did_you_mean(name, parameters)}")
        for name in given
        if name not in parameters
    ]
    for name, parameter in parameters.items():
        if name in given:
            value = _read(parameter, given[name])
            if value is None:
                problems.append(Problem(f"--set {name}", _unread(parameter, given[name])))
            else:
                values[name] = value
        elif parameter.default is not None:
            values[name] = parameter.default
        else:
            more = f": {parameter.help}" if parameter.help else ""
            problems.append(Problem(name, f"is missing: --set {name}=… ({parameter.kind}{more})"))
    return values, problems


def _read(parameter: Parameter, text: str) -> Value | None:
    """What was typed, as a value of its type; None where it is none."""
    match parameter.type:
        case "integer":
            return int(text) if re.fullmatch(r"[+-]?\d{1,18}", text, re.ASCII) else None
        case "number":
            if not re.fullmatch(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?", text, re.ASCII):
                return None
            return number if math.isfinite(number := float(text)) else None
        case "boolean":
            return {"true": True, "false": False}.get(text)
        case "choice" | "string":
            return None if _mismatch(parameter, text) else text


def _unread(parameter: Parameter, text: str) -> str:
    return _mismatch(parameter, text) or f"{text[:80]!r} is {_ARTICLE[parameter.type]}"


def _mismatch(parameter: Parameter, value: Value) -> str | None:
    """Why a value is none for this parameter."""
    match parameter.type:
        case "string" | "choice" if not isinstance(value, str):
            return "is no text; put it into quotes"
        case "choice" if value not in parameter.choices:
            return f"{str(value)[:80]!r} is not {parameter.kind}"
        case "string" if len(str(value)) > LONGEST_VALUE:
            return f"has {len(str(value))} characters; at most {LONGEST_VALUE}"
        case "string" if not str(value).isprintable():
            return "holds a control character; a value is one line of text"
        case "integer" if not isinstance(value, int) or isinstance(value, bool):
            return f"{str(value)[:80]!r} is {_ARTICLE['integer']}"
        case "number" if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
            return f"{str(value)[:80]!r} is {_ARTICLE['number']}"
        case "boolean" if not isinstance(value, bool):
            return f"{str(value)[:80]!r} is {_ARTICLE['boolean']}"
        case _:
            return None


def shown(value: object) -> str:
    """A value as it is typed and as it stands in a text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class _Filler:
    """Walks a document once, and remembers what could not be filled in."""

    def __init__(self, parameters: Mapping[str, Parameter], values: Mapping[str, JsonValue]) -> None:
        self._parameters = parameters
        self._values = values
        self.problems: list[Problem] = []

    def filled(self, value: object, place: Place) -> object:
        match value:
            case str():
                return self._text(value, place)
            case Mapping():
                return {key: self.filled(item, (*place, str(key))) for key, item in value.items()}
            case list() | tuple():
                return [self.filled(item, (*place, index)) for index, item in enumerate(value)]
            case _:
                return value

    def _text(self, text: str, place: Place) -> object:
        whole = PLACEHOLDER.fullmatch(text)
        if whole is not None and _is_worker_parameter(place) and whole[1] in self._values:
            return self._values[whole[1]]  # a number stays one
        parts, end = [], 0
        for found in PLACEHOLDER.finditer(text):
            parts += [text[end : found.start()], self._one(found, text, place)]
            end = found.end()
        return "".join((*parts, text[end:]))

    def _one(self, found: re.Match[str], text: str, place: Place) -> str:
        name = found[1]
        if name not in self._parameters:
            near = did_you_mean(name, self._parameters)
            self._problem(place, f"{found[0]}: [parameters] declares no {name!r}{near}")
        elif name in self._values:
            value = shown(self._values[name])
            fits = self._fitted(found, value, text, place)
            if fits is not None:
                return fits
        return found[0]

    def _fitted(self, found: re.Match[str], value: str, text: str, place: Place) -> str | None:
        name = found[1]
        if _is_command(place):
            if len(text) > LONGEST_COMMAND:
                self._problem(place, f"has {len(text)} characters; with placeholders at most {LONGEST_COMMAND}")
                return None
            free = self._parameters[name].type == "string"
            fits = fitted(text, found.start(), value, may_be_option=not free)
            if fits is None:
                why = f"{value[:80]!r} could change what this command does; {_INSTEAD}"
                self._problem(place, f"{found[0]}: {why}")
            return fits
        if _is_path(place) and _WIDER.search(value):
            self._problem(place, f"{found[0]}: {value[:80]!r} holds a wildcard, which would let more be changed")
            return None
        return value

    def _problem(self, place: Place, message: str) -> None:
        path = str(place[0]) + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place[1:])
        self.problems.append(Problem(path, message))


_INSTEAD = "write the placeholder as a word of its own, without quotes (it is quoted where it has to be), or choose"
_INSTEAD += " a value of letters, digits and _@%+=:./- that does not begin with a dash"


def _is_command(place: Place) -> bool:
    """Of a check: the one string of a plan that a shell reads."""
    return place[-1] == "run" and "acceptance" in place


def _is_path(place: Place) -> bool:
    return len(place) > 1 and place[-2] in {"touches", "context"}


def _is_worker_parameter(place: Place) -> bool:
    return len(place) > 2 and place[2] == TABLE  # noqa: PLR2004 - subtasks, a number, its field


def examples(parameters: Mapping[str, Parameter]) -> dict[str, str]:
    """A value for whatever has to be set, to look at a plan that nobody sets anything of yet."""
    made = {"string": "{name}", "integer": "1", "number": "1", "boolean": "true"}
    return {
        name: parameter.choices[0] if parameter.type == "choice" else made[parameter.type].format(name=name)
        for name, parameter in parameters.items()
        if parameter.default is None
    }


def said(parameters: Mapping[str, Parameter]) -> list[str]:
    """What a plan takes, a line each."""
    lines = []
    for name, parameter in parameters.items():
        holds = "required" if parameter.default is None else f"default {shown(parameter.default)}"
        lines.append(f"{name} ({parameter.kind}; {holds}){': ' if parameter.help else ''}{parameter.help}")
    return lines
