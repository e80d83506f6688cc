"""Reads a plan from a document's data: finds every problem at once, and accepts the spellings of deployment plans.

Knows nothing of files: the data may come from JSON or TOML.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from fleet.core.base.ids import did_you_mean
from fleet.core.plans.plan import PLANNER, WORKER_SUCCEEDED, Plan, Subtask
from fleet.core.plans.revision import Revision
from fleet.core.plans.validate import LONGEST_GOAL, LONGEST_TITLE, Known, Problem, plan_problems

Model = TypeVar("Model", bound=BaseModel)

_STEP_SPELLINGS = {"action": "title", "success_criteria": "acceptance"}
_ABORTS = {"abort_deployment": "abort", "abort_run": "abort"}


def read_plan(data: object, known: Known | None = None) -> Plan | tuple[Problem, ...]:
    """The plan in `data`, or everything that is wrong with it."""
    if not isinstance(data, Mapping):
        return (Problem("", "a plan is a table with `goal` and `subtasks`"),)
    document = dict(data)
    has_steps = "steps" in document
    if has_steps and "subtasks" in document:
        return (Problem("steps", "means the same as `subtasks`; keep one of them"),)
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
    problems += plan_problems(plan, known or Known(), also_ids=ids, places=tuple(subtasks))
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
# Flat runs: one worker does the whole epic. All subtasks of a planner's first revision or of a plan become one.


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
