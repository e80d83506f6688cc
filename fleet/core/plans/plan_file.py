"""From a document's data to a plan: every problem at once, and the other spellings people use.

Reads data, not files: who opened the JSON or TOML is not known here.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from fleet.core.plan import WORKER_SUCCEEDED, Plan, Subtask
from fleet.core.validate import Known, Problem, plan_problems

Model = TypeVar("Model", bound=BaseModel)

_STEP_SPELLINGS = {"action": "title", "success_criteria": "acceptance"}
_ABORTS = {"abort_deployment": "abort", "abort_run": "abort"}


def read_plan(data: object, known: Known | None = None) -> Plan | tuple[Problem, ...]:
    """The plan in `data`, or every reason why it is none."""
    if not isinstance(data, Mapping):
        return (Problem("", "a plan is a table with `goal` and `subtasks`"),)
    document = dict(data)
    steps = "steps" in document
    if steps and "subtasks" in document:
        return (Problem("steps", "stands beside `subtasks`; they mean the same, keep one"),)
    raw = document.pop("steps" if steps else "subtasks", ())
    if not isinstance(raw, list | tuple):
        return (Problem("subtasks", "is a list of subtasks"),)
    found, problems = _read_subtasks([_respelt(item) if steps else item for item in raw])
    head = parse(Plan, document, at="")
    if not isinstance(head, Plan):
        problems += head
        head = Plan()
    plan = head.model_copy(update={"subtasks": tuple(found.values())})
    problems += plan_problems(plan, known or Known(), also_ids=_ids_in(raw), places=tuple(found))
    return tuple(dict.fromkeys(problems)) or _first_version(plan)


def _first_version(plan: Plan) -> Plan:
    """What a person wrote is a version, whether they counted or not: 0 is before there was any plan."""
    return plan if plan.version else plan.model_copy(update={"version": 1})


def parse(model: type[Model], data: object, *, at: str) -> Model | tuple[Problem, ...]:
    """`data` as a `model`, or its problems with their paths below `at`."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        return tuple(Problem(_joined(at, problem["loc"]), _said(problem)) for problem in error.errors())


def _said(problem: Mapping[str, Any]) -> str:
    if problem["type"] == "missing":
        return "is missing"
    if problem["type"] == "extra_forbidden":
        return "is no field here"
    message = str(problem["msg"])
    return message[0].lower() + message[1:]


def _joined(at: str, location: tuple[int | str, ...]) -> str:
    text = at
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _read_subtasks(raw: list[Any]) -> tuple[dict[str, Subtask], tuple[Problem, ...]]:
    """Those that can be read, by where they stand."""
    subtasks: dict[str, Subtask] = {}
    problems: list[Problem] = []
    for index, item in enumerate(raw):
        place = f"subtasks[{index}]"
        read = parse(Subtask, item, at=place)
        if isinstance(read, Subtask):
            subtasks[place] = read
        else:
            problems += read
    return subtasks, tuple(problems)


def _ids_in(raw: list[Any] | tuple[Any, ...]) -> frozenset[str]:
    return frozenset(item["id"] for item in raw if isinstance(item, Mapping) and isinstance(item.get("id"), str))


def _respelt(step: object) -> object:
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
