"""The views of plan files, library plans and run plans for `fleet plans`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

from fleet.core.base.ids import RunId, SubtaskId
from fleet.core.facts.facts import SubtaskEstimate
from fleet.core.plans.parameters import Parameter
from fleet.core.plans.plan import PLANNER, Plan, Subtask
from fleet.core.policy.requests import is_unreviewed, objections, waiting_for_approval
from fleet.core.state.state import Review, RunState, Version
from fleet.core.state.status import split_or_dropped
from fleet.core.state.subtasks import SubtaskState


@dataclass(frozen=True, slots=True)
class PlanCheckView:
    """A valid plan. An invalid plan is an error instead."""

    ok: bool
    """Always true."""
    warnings: tuple[str, ...]
    """The linter's warnings about the plan."""
    values: Mapping[str, JsonValue]
    """The values of its parameters."""


@dataclass(frozen=True, slots=True)
class RunPlanView:
    """The current plan of a run."""

    run: str
    """The name of the run."""
    version: int
    """The version of the plan, needed to approve it."""
    plan: Plan
    """[The plan](plan-file.md), with all its defaults."""


@dataclass(frozen=True, slots=True)
class PlanChangesView:
    """The differences between two plans."""

    changes: tuple[str, ...]
    """One line per change, as in the text output."""


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A subtask in the graph of a plan."""

    id: str
    """The id."""
    title: str
    """The title."""
    depends_on: tuple[str, ...]
    """The subtasks that it depends on."""


@dataclass(frozen=True, slots=True)
class GraphView:
    """The dependencies of a plan."""

    subtasks: tuple[GraphNode, ...]
    """In plan order."""
    file: str
    """The written file. Empty without one."""


@dataclass(frozen=True, slots=True)
class ParameterView:
    """A parameter that a plan declares."""

    name: str
    """The name."""
    required: bool
    """Whether a value must be set."""
    type: str
    """`string`, `integer`, `number`, `boolean` or `choice`."""
    help: str
    """The description of the parameter."""
    default: str | int | float | bool | None
    """The default value. Null if a value is required."""
    choices: tuple[str, ...]
    """The values of a `choice`."""


@dataclass(frozen=True, slots=True)
class LibraryPlanView:
    """A plan in the library."""

    name: str
    """The name for `--plan`."""
    title: str
    """The goal, on one line."""
    where: str
    """The library: `repository` or `user`."""
    file: str
    """The file."""
    parameters: tuple[ParameterView, ...]
    """The parameters of the plan."""
    problem: str | None
    """Why it can't be read. Null if it can."""


@dataclass(frozen=True, slots=True)
class SavedPlanView:
    """A plan that was saved to the library."""

    file: str
    """The file that was written."""
    name: str
    """The name in the library."""
    notes: tuple[str, ...]
    """Notes about omitted or missing subtasks."""


@dataclass(frozen=True, slots=True)
class EditedPlanView:
    """The result of editing a plan."""

    target: str
    """The run or the file."""
    changed: bool
    """Whether it was changed."""


@dataclass(frozen=True, slots=True)
class VersionChangesView:
    """A version of a run's plan, with its differences from the version before."""

    version: int
    """The number."""
    by: str
    """The author: a person or a planner."""
    area: str | None
    """The area of the planner. Null for the planner of the run."""
    why: str
    """The reason."""
    changes: tuple[str, ...]
    """One line per change."""


def graph_view(plan: Plan, file: str = "") -> GraphView:
    return GraphView(tuple(GraphNode(each.id, each.title, tuple(each.depends_on)) for each in plan.subtasks), file)


def parameter_view(name: str, parameter: Parameter) -> ParameterView:
    return ParameterView(
        name,
        required=parameter.default is None,
        type=parameter.type,
        help=parameter.help,
        default=parameter.default,
        choices=parameter.choices,
    )


# ---- plan diff -------------------------------------------------------------------------------------------------------
# The changes between two versions of a plan, as text.


_SHOWN = 100  # characters of a value


def plan_diff(before: Plan, after: Plan) -> tuple[str, ...]:
    """One line per change: `+ id`, `- id`, `~ id field: old → new`."""
    return tuple(_lines(before, after))


def _lines(before: Plan, after: Plan) -> Iterator[str]:
    old = {subtask.id: subtask for subtask in before.subtasks}
    new = {subtask.id: subtask for subtask in after.subtasks}
    for id_, subtask in new.items():
        if id_ not in old:
            yield f"+ {id_}: {subtask.title}"
        elif subtask != old[id_]:
            yield from (f"~ {id_} {line}" for line in spec_diff(old[id_], subtask))
    for id_, subtask in old.items():
        if id_ not in new:
            yield f"- {id_}: {subtask.title}"
    for name in ("goal", "rollback_plan", "risk_level", "estimated_duration"):
        if getattr(before, name) != getattr(after, name):
            yield f"~ {name}: {_short(getattr(before, name))} → {_short(getattr(after, name))}"


def spec_diff(old: Subtask, new: Subtask) -> tuple[str, ...]:
    """One line per changed field: `field: old → new`."""
    lines = []
    for name in Subtask.model_fields:
        was, is_ = getattr(old, name), getattr(new, name)
        if was == is_:
            continue
        if name == "acceptance":
            was, is_ = ([criterion.shown for criterion in side] for side in (was, is_))
        lines.append(f"{name}: {_short(was)} → {_short(is_)}")
    return tuple(lines)


def _short(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else "" if value is None else str(value)
    text = " ".join(text.split()) or "(nothing)"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def version_diffs(versions: Sequence[Version], first: int, last: int) -> Iterator[VersionChangesView]:
    """The versions after `first` up to `last`, with their changes."""
    before = Plan()
    for version in versions:
        if first < version.plan.version <= last:
            changes = plan_diff(before.model_copy(update={"goal": version.plan.goal}), version.plan)
            yield VersionChangesView(version.plan.version, version.by, version.area, version.why, changes)
        before = version.plan


# ---- review of a plan ------------------------------------------------------------------------------------------------
# The part of a plan that waits for approval, with the details for a decision.


@dataclass(frozen=True, slots=True)
class PendingSubtask:
    """A subtask that waits for approval."""

    subtask: Subtask
    rejected: Review | None
    """The last review, if it rejected the subtask in this form."""
    objections: tuple[str, ...]
    """The rules that it breaks."""
    since: Literal["approved", "rejected"]
    """The last verdict, which `changes` refers to."""
    changes: tuple[str, ...]
    """The changes since the last review, one line each."""


@dataclass(frozen=True, slots=True)
class PlanReview:
    """The part of a run's plan that waits for approval."""

    run: RunId
    plan: Plan
    warnings: tuple[str, ...]
    """The linter's warnings about the plan."""
    values: Mapping[str, JsonValue]
    """The values of its parameters."""
    unreviewed: bool
    """Whether no subtask was approved yet."""
    pending: tuple[PendingSubtask, ...]
    latest: Version | None
    """The latest version of the plan."""
    changes: tuple[str, ...]
    """The changes. Empty after the first approval."""
    rollback: Plan | None
    """The plan that undoes it."""
    past_estimates: tuple[SubtaskEstimate, ...]
    """Estimates from landed subtasks of earlier runs."""


def plan_review(state: RunState) -> PlanReview:
    unreviewed, latest = is_unreviewed(state), state.versions[-1] if state.versions else None
    changes: tuple[str, ...] = ()
    if latest is not None and unreviewed and len(state.versions) > 1:
        changes = plan_diff(state.versions[-2].plan, latest.plan)
    return PlanReview(
        run=state.run,
        plan=state.plan,
        warnings=tuple(state.plan_warnings),
        values=state.values,
        unreviewed=unreviewed,
        pending=tuple(_pending(state, state.spec(id_)) for id_ in waiting_for_approval(state)),
        latest=latest,
        changes=changes,
        rollback=state.rollback,
        past_estimates=state.past_estimates,
    )


def _pending(state: RunState, spec: Subtask) -> PendingSubtask:
    review = next((review for review in reversed(state.reviews) if spec.id in review.subtasks), None)
    was_rejected = review is not None and review.rejected
    before = (state.shelved if was_rejected else state.cleared).get(spec.id)
    return PendingSubtask(
        subtask=spec,
        rejected=review if was_rejected and state.shelved.get(spec.id) == spec else None,
        objections=tuple(objections(state, spec.id)),
        since="rejected" if was_rejected else "approved",
        changes=spec_diff(before, spec) if before is not None and before != spec else (),
    )


def remaining_plan(state: RunState) -> Plan:
    """The plan without split and dropped subtasks."""
    over = split_or_dropped(state)
    subtasks = tuple(subtask for subtask in state.plan.subtasks if subtask.id not in over)
    return state.plan.model_copy(update={"subtasks": subtasks})


# ---- saved plan ------------------------------------------------------------------------------------------------------
# The plan of an ended run as a reusable plan: the landed subtasks, without run-specific values.


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A plan to save, and the omitted subtasks with the reasons."""

    plan: Plan
    left_out: tuple[tuple[SubtaskId, str], ...] = ()


def saved_plan(state: RunState, name: str) -> SavedPlan | str:
    """Return a plan of the landed subtasks under a new name, or an error message.

    Split subtasks are replaced by their parts, and areas by their subtasks. A dependency on an omitted subtask is
    replaced by the dependencies of that subtask, to keep the order.
    """
    if not state.ended:
        return f"{state.run} has not ended, so its plan can't be saved yet"
    if state.undoing is not None:
        return f"{state.run} was rolled back ({state.undoing}). Fix the original plan file and save that instead"
    landed = [spec for spec in state.plan.subtasks if _landed_as_work(state.subtasks[spec.id])]
    if not landed:
        return f"{state.run} did not land any subtasks, so its plan can't be saved"
    plan = Plan(
        plan_id=name,
        goal=state.plan.goal or state.goal,
        version=1,
        subtasks=tuple(_without_history(state, spec) for spec in landed),
        rollback_plan=state.plan.rollback_plan,
        risk_level=state.plan.risk_level,
        estimated_duration=state.plan.estimated_duration,
    )
    left_out = ((id_, why) for id_ in state.plan.ids if (why := _why_left_out(state.subtasks[id_])))
    return SavedPlan(plan, tuple(left_out))


def _landed_as_work(subtask: SubtaskState) -> bool:
    """Whether a subtask landed and is not an area. The subtasks of an area are saved instead."""
    return subtask.landed is not None and subtask.attempts[-1].worker != PLANNER


def _without_history(state: RunState, spec: Subtask) -> Subtask:
    """The subtask without its start time, and only with dependencies on saved subtasks."""
    needs, area = spec.depends_on, state.subtasks[spec.id].area
    while area is not None:
        needs, area = (*needs, *state.spec(area).depends_on), state.subtasks[area].area
    saved = dict.fromkeys(id_ for need in needs for id_ in _replacements(state, need))
    saved.pop(spec.id, None)
    return spec.model_copy(update={"depends_on": tuple(saved), "not_before": None})


def _replacements(state: RunState, id_: SubtaskId) -> list[SubtaskId]:
    """The saved subtasks that replace `id_` as a dependency."""
    saved: dict[SubtaskId, None] = {}
    pending, seen = [id_], set[SubtaskId]()
    while pending:
        current = pending.pop(0)
        subtask = state.subtasks.get(current)
        if current in seen or subtask is None:
            continue
        seen.add(current)
        if _landed_as_work(subtask):
            saved[current] = None
        else:
            in_area = [inner.id for inner in state.subtasks.values() if inner.area == current]
            pending += [*subtask.parts, *in_area] or state.spec(current).depends_on
    return list(saved)


def _why_left_out(subtask: SubtaskState) -> str | None:
    if subtask.landed is not None or subtask.parts:
        return None
    if subtask.dropped is not None:
        return f"dropped: {subtask.dropped}"
    if subtask.skipped:
        return "skipped"
    failure = subtask.failure or (subtask.last.failure if subtask.last is not None else None)
    return f"did not land: {failure.summary}" if failure is not None else "did not land"
