"""Parameters of plans: their declarations, and the plan's document with the values filled in.

A placeholder is `{set:NAME}` in any string of the plan. Values come from a command line that a script may have put
together, so the place of a placeholder limits its value: a command takes plain characters only, a path no wildcards
(docs/decisions, "A value in a check's command has plain characters only").
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, Field, JsonValue, ValidationError

from fleet.core.base.ids import did_you_mean
from fleet.core.plans.plan import PLANNER, WORKER_SUCCEEDED, FrozenModel, Plan, Subtask
from fleet.core.plans.revision import LONGEST_GOAL, LONGEST_TITLE, PlanContext, Problem, Revision, plan_problems

TABLE = "parameters"
PLACEHOLDER = re.compile(r"\{set:([A-Za-z_][\w-]*)\}", re.ASCII)
LONGEST_VALUE = 4_000  # characters
_NAME = re.compile(r"[A-Za-z_][\w-]{0,63}", re.ASCII)
_WILDCARD = re.compile(r"[*?\[\]]")
_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:./-]+")
"""Characters without a meaning to any shell, in quotes or out of them. A comma may separate words in braces."""

Place = tuple[str | int, ...]
Value = str | int | float | bool


class Parameter(FrozenModel):
    """The declaration of one parameter."""

    type: Literal["string", "integer", "number", "boolean", "choice"] = "string"
    """The type of its values."""
    help: str = ""
    """Purpose of the value, shown if it is missing."""
    default: Value | None = Field(default=None, description="The value if none is set. Without it, one is required.")
    choices: tuple[str, ...] = Field(default=(), description="The values of a `choice`.")

    @property
    def kind(self) -> str:
        """Return the type or the choices in words."""
        return f"one of {', '.join(self.choices)}" if self.type == "choice" else self.type


@dataclass(frozen=True, slots=True)
class Filled:
    """A plan's document with its values filled in, and the values."""

    document: Mapping[str, object]
    values: Mapping[str, JsonValue] = field(default_factory=dict)


def read_parameters(data: Mapping[str, object]) -> dict[str, Parameter] | tuple[Problem, ...]:
    """The parameters that a document declares, or every problem with them."""
    table = data.get(TABLE)
    if table is None:
        return {}
    if not isinstance(table, Mapping):
        return (Problem(TABLE, "must be a table: [parameters.NAME] with type, help, default"),)
    parameters: dict[str, Parameter] = {}
    problems: list[Problem] = []
    for name, declaration in table.items():
        place = f"{TABLE}.{name}"
        if not _NAME.fullmatch(str(name)):
            problems.append(
                Problem(place, "must start with a letter, then up to 63 letters, digits, dashes or underscores")
            )
            continue
        parameter = parse(Parameter, declaration, at=place)
        if isinstance(parameter, Parameter):
            parameters[str(name)] = parameter
            problems += _declaration_problems(parameter, place)
        else:
            problems += parameter
    return tuple(problems) or parameters


def _declaration_problems(parameter: Parameter, place: str) -> Iterator[Problem]:
    if (parameter.type == "choice") != bool(parameter.choices):
        yield Problem(f"{place}.choices", "are required for type 'choice' and not allowed for other types")
    elif parameter.default is not None and (problem := _type_problem(parameter, parameter.default)):
        yield Problem(f"{place}.default", problem)


def fill(data: Mapping[str, object], settings: Mapping[str, str]) -> Filled | tuple[Problem, ...]:
    """The document with the values of `settings` and the defaults of the other parameters, or every problem."""
    parameters = read_parameters(data)
    if isinstance(parameters, tuple):
        return parameters
    body = {key: value for key, value in data.items() if key != TABLE}
    if TABLE not in data and not settings:
        return Filled(body)  # without declarations, text that looks like a placeholder is allowed
    values, problems = _read_values(parameters, settings)
    filler = _Filler(parameters, values)
    document = {key: filler.fill(value, (key,)) for key, value in body.items()}
    problems += filler.problems
    return tuple(dict.fromkeys(problems)) or Filled(document, values)


def _read_values(
    parameters: Mapping[str, Parameter], settings: Mapping[str, str]
) -> tuple[dict[str, JsonValue], list[Problem]]:
    values: dict[str, JsonValue] = {}
    problems = [
        Problem(f"--set {name}", f"is not a parameter of the plan{did_you_mean(name, parameters)}")
        for name in settings
        if name not in parameters
    ]
    for name, parameter in parameters.items():
        if name in settings:
            value = _parse_value(parameter, settings[name])
            if problem := _type_problem(parameter, value):
                problems.append(Problem(f"--set {name}", problem))
            else:
                values[name] = value
        elif parameter.default is not None:
            values[name] = parameter.default
        else:
            more = f": {parameter.help}" if parameter.help else ""
            problems.append(Problem(name, f"is required: pass --set {name}=… ({parameter.kind}{more})"))
    return values, problems


def _parse_value(parameter: Parameter, text: str) -> Value:
    """Convert `text` to the parameter's type. Return it unchanged if that is not possible."""
    match parameter.type:
        case "integer" if re.fullmatch(r"[+-]?\d{1,18}", text, re.ASCII):
            return int(text)
        case "number" if re.fullmatch(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?", text, re.ASCII):
            return float(text)
        case "boolean" if text in {"true", "false"}:
            return text == "true"
        case _:
            return text


def _type_problem(parameter: Parameter, value: Value) -> str | None:
    """Return why `value` does not have the parameter's type, or None."""
    shown = repr(str(value)[:80])
    match parameter.type:
        case "integer" if not isinstance(value, int) or isinstance(value, bool):
            return f"{shown} is not an integer"
        case "number" if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
            return f"{shown} is not a number"
        case "boolean" if not isinstance(value, bool):
            return f"{shown} is neither true nor false"
        case "choice" if value not in parameter.choices:
            return f"{shown} is not {parameter.kind}"
        case "string" if not isinstance(value, str):
            return "is not text. Put it in quotes"
        case "string" if len(str(value)) > LONGEST_VALUE:
            return f"has {len(str(value))} characters, and the limit is {LONGEST_VALUE}"
        case "string" if not str(value).isprintable():
            return "contains a control character. A value must be one line of text"
        case _:
            return None


def value_text(value: object) -> str:
    """A value as `--set` takes it and as it is written into a text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class _Filler:
    """Fills in a document and collects the problems."""

    def __init__(self, parameters: Mapping[str, Parameter], values: Mapping[str, JsonValue]) -> None:
        self._parameters = parameters
        self._values = values
        self.problems: list[Problem] = []

    def fill(self, value: object, place: Place) -> object:
        match value:
            case str():
                return self._fill_text(value, place)
            case Mapping():
                return {key: self.fill(item, (*place, str(key))) for key, item in value.items()}
            case list() | tuple():
                return [self.fill(item, (*place, index)) for index, item in enumerate(value)]
            case _:
                return value

    def _fill_text(self, text: str, place: Place) -> object:
        only = PLACEHOLDER.fullmatch(text)
        if only is not None and _is_worker_parameter(place) and only[1] in self._values:
            return self._values[only[1]]  # a number stays a number
        return PLACEHOLDER.sub(lambda placeholder: self._replacement(placeholder, place), text)

    def _replacement(self, placeholder: re.Match[str], place: Place) -> str:
        name = placeholder[1]
        if name not in self._parameters:
            near = did_you_mean(name, self._parameters)
            self._add_problem(place, f"{placeholder[0]}: [parameters] does not declare {name!r}{near}")
        elif name in self._values:
            value = value_text(self._values[name])
            problem = _place_problem(placeholder, value, place, is_free=self._parameters[name].type == "string")
            if problem is None:
                return value
            self._add_problem(place, f"{placeholder[0]}: {problem}")
        return placeholder[0]

    def _add_problem(self, place: Place, message: str) -> None:
        path = str(place[0]) + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place[1:])
        self.problems.append(Problem(path, message))


def _place_problem(placeholder: re.Match[str], value: str, place: Place, *, is_free: bool) -> str | None:
    """Return why a value may not be used in this place, or None. `is_free`: the value is not from a fixed list."""
    shown = repr(value[:80])
    if _is_path(place) and _WILDCARD.search(value):
        return f"{shown} has a wildcard, which would allow changes to more files"
    if not _is_command(place):
        return None
    if placeholder.string[placeholder.start() - 1 : placeholder.start()] == "$":
        return "can't follow a $, because that would make it a variable"
    if not _PLAIN.fullmatch(value) or (is_free and value.startswith("-")):
        return (
            f"{shown} could change the meaning of this command. In a command, a value may only contain letters, "
            "digits and _@%+=:./- and must not start with a dash"
        )
    return None


def _is_command(place: Place) -> bool:
    """Whether this is the command of a check, the only string of a plan that a shell reads."""
    return place[-1] == "run" and "acceptance" in place


def _is_path(place: Place) -> bool:
    return len(place) > 1 and place[-2] in {"touches", "context"}


def _is_worker_parameter(place: Place) -> bool:
    return len(place) > 2 and place[2] == TABLE  # noqa: PLR2004 - subtasks, a number, its field


def example_settings(parameters: Mapping[str, Parameter]) -> dict[str, str]:
    """A value for each required parameter, to check a plan before any are set."""
    examples = {"integer": "1", "number": "1", "boolean": "true"}
    return {
        name: parameter.choices[0] if parameter.type == "choice" else examples.get(parameter.type, name)
        for name, parameter in parameters.items()
        if parameter.default is None
    }


def parameter_lines(parameters: Mapping[str, Parameter]) -> list[str]:
    """One line about each parameter of a plan."""
    lines = []
    for name, parameter in parameters.items():
        otherwise = "required" if parameter.default is None else f"default {value_text(parameter.default)}"
        lines.append(f"{name} ({parameter.kind}; {otherwise}){': ' if parameter.help else ''}{parameter.help}")
    return lines


# ---- plan file -------------------------------------------------------------------------------------------------------
# Reads a plan from a document's data. Reports all problems together, and accepts the aliases of deployment plans.
#
# Independent of files: the data may come from JSON or TOML.


Model = TypeVar("Model", bound=BaseModel)

_STEP_SPELLINGS = {"action": "title", "success_criteria": "acceptance"}
_ABORTS = {"abort_deployment": "abort", "abort_run": "abort"}


def read_plan(data: object, known: PlanContext | None = None) -> Plan | tuple[Problem, ...]:
    """The plan in `data`, or everything that is wrong with it."""
    if not isinstance(data, Mapping):
        return (Problem("", "a plan is a table with `goal` and `subtasks`"),)
    document = dict(data)
    has_steps = "steps" in document
    if has_steps and "subtasks" in document:
        return (Problem("steps", "is an alias of `subtasks`. Keep one of them"),)
    raw = document.pop("steps" if has_steps else "subtasks", ())
    if not isinstance(raw, list | tuple):
        return (Problem("subtasks", "is not a list of subtasks"),)
    subtasks, problems = _read_subtasks([_step_as_subtask(item) if has_steps else item for item in raw])
    head = parse(Plan, document, at="")
    if not isinstance(head, Plan):
        problems += head
        head = Plan()
    version = head.version or 1  # 0 is the state before there is any plan
    plan = head.model_copy(update={"subtasks": tuple(subtasks.values()), "version": version})
    ids = frozenset(item["id"] for item in raw if isinstance(item, Mapping) and isinstance(item.get("id"), str))
    problems += plan_problems(plan, known or PlanContext(), also_ids=ids, places=tuple(subtasks))
    return tuple(dict.fromkeys(problems)) or plan


def parse(model: type[Model], data: object, *, at: str) -> Model | tuple[Problem, ...]:
    """`data` as a `model`, or its problems with their paths below `at`."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        names = _field_names(model)
        return tuple(Problem(_path(at, problem["loc"]), _message(problem, names)) for problem in error.errors())


def _field_names(model: type[BaseModel]) -> set[str]:
    """The fields of a model and of all models inside it."""
    schema = model.model_json_schema()
    return {name for part in (schema, *schema.get("$defs", {}).values()) for name in part.get("properties", {})}


def _message(problem: Mapping[str, Any], names: set[str]) -> str:
    if problem["type"] == "missing":
        return "is missing"
    if problem["type"] == "extra_forbidden":
        return f"is not a field here{did_you_mean(str(problem['loc'][-1]), sorted(names))}"
    message = str(problem["msg"])
    return message[0].lower() + message[1:]


def _path(at: str, location: tuple[int | str, ...]) -> str:
    text = at
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _read_subtasks(raw: list[Any]) -> tuple[dict[str, Subtask], tuple[Problem, ...]]:
    """The valid subtasks by their place in the document, and the problems of the others."""
    subtasks: dict[str, Subtask] = {}
    problems: list[Problem] = []
    for index, item in enumerate(raw):
        place = f"subtasks[{index}]"
        subtask = parse(Subtask, item, at=place)
        if isinstance(subtask, Subtask):
            subtasks[place] = subtask
        else:
            problems += subtask
    return subtasks, tuple(problems)


def _step_as_subtask(step: object) -> object:
    """A step of a deployment plan as a subtask: its action is the title, its success criteria a named check."""
    if not isinstance(step, Mapping):
        return step
    subtask = {_STEP_SPELLINGS.get(str(key), str(key)): value for key, value in step.items()}
    title = subtask.get("title")
    if isinstance(title, str):
        subtask.setdefault("goal", title)
    acceptance = subtask.get("acceptance", WORKER_SUCCEEDED)
    if isinstance(acceptance, str):
        subtask["acceptance"] = [{"criterion": acceptance, "fails_before": False}]
    action = subtask.get("failure_action")
    if isinstance(action, str):
        subtask["failure_action"] = _ABORTS.get(action, action)
    return subtask


# ---- flat ------------------------------------------------------------------------------------------------------------
# Flat runs: one worker does the entire epic. All subtasks of a plan or of the first revision become one.


NOTE = " (merged into one subtask: the run is flat)"


def is_flat(plan: Plan) -> bool:
    return len(plan.subtasks) == 1


def flat_revision(revision: Revision, goal: str) -> Revision:
    """The first revision of a run with all its subtasks merged into one."""
    if len(revision.add) < 2:  # noqa: PLR2004 - a single subtask is flat already
        return revision
    merged = merge_subtasks(revision.add, goal)
    return revision.model_copy(update={"add": (merged,), "assessment": revision.assessment + NOTE})


def flat_plan(plan: Plan) -> Plan:
    """The plan with all its subtasks merged into one."""
    if len(plan.subtasks) < 2:  # noqa: PLR2004
        return plan
    return plan.model_copy(update={"subtasks": (merge_subtasks(plan.subtasks, plan.goal),)})


def merge_subtasks(subtasks: tuple[Subtask, ...], goal: str) -> Subtask:
    """One subtask with every goal in order, every check and every path. If one may change any file, so may it."""
    first = subtasks[0]
    steps = "\n\n".join(f"{number}. {step.title}\n{step.goal}" for number, step in enumerate(subtasks, start=1))
    is_bounded = all(subtask.touches for subtask in subtasks)
    workers = (subtask.worker for subtask in subtasks if subtask.worker != PLANNER)
    return first.model_copy(
        update={
            "title": (goal.strip().splitlines() or [first.title])[0][:LONGEST_TITLE],
            "goal": f"Do all of this:\n\n{steps}"[:LONGEST_GOAL],
            "acceptance": tuple(dict.fromkeys(check for subtask in subtasks for check in subtask.acceptance)),
            "touches": tuple(dict.fromkeys(p for subtask in subtasks for p in subtask.touches)) if is_bounded else (),
            "context": tuple(dict.fromkeys(path for subtask in subtasks for path in subtask.context)),
            "depends_on": (),
            "worker": next(workers, Subtask.model_fields["worker"].default),
            "risk": max((subtask.risk for subtask in subtasks), key=("low", "medium", "high").index),
            "estimate": first.estimate.model_copy(update={"minutes": None, "lines": None, "dollars": None}),
        }
    )
