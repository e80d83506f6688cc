"""The changes between two versions of a plan, as lines for a person."""

from collections.abc import Iterator, Sequence

from fleet.core.plans.plan import Plan, Subtask
from fleet.core.state.state import Version

_SHOWN = 100  # characters of a value; the plan file has the rest


def plan_diff(before: Plan, after: Plan) -> tuple[str, ...]:
    """A line for each change: `+ id`, `- id`, `~ id field: old → new`."""
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
    """A line for each change of a subtask: `field: old → new`."""
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


def version_diffs(versions: Sequence[Version], first: int, last: int) -> Iterator[tuple[Version, tuple[str, ...]]]:
    """Each version after `first` up to `last`, with its changes to the one before it."""
    before = Plan()
    for version in versions:
        if first < version.plan.version <= last:
            yield version, plan_diff(before.model_copy(update={"goal": version.plan.goal}), version.plan)
        before = version.plan
