"""A plan that a person edited, as the revision that leads to it: the same thing a planner would have submitted."""

from collections.abc import Collection

from fleet.core.ids import SubtaskId
from fleet.core.plan import Plan, Subtask
from fleet.core.revision import Change, Drop, Revision

CHANGEABLE = tuple(name for name in Change.model_fields if name != "id")


def amendment(before: Plan, after: Plan, *, why: str, gone: Collection[SubtaskId] = ()) -> Revision | str:
    """What changes from `before` to `after`, or why that can't be said. Whether it may happen now is not known here.

    `gone` are subtasks of `before` that were split or dropped already: nobody needs to be told that they are left out.
    """
    if before.goal != after.goal:
        return "the goal is what the run was begun with; only its subtasks can be edited"
    old = {subtask.id: subtask for subtask in before.subtasks}
    new = {subtask.id: subtask for subtask in after.subtasks}
    changes = []
    for id_, subtask in new.items():
        if id_ in old and subtask != old[id_]:
            change = _change(old[id_], subtask)
            if isinstance(change, str):
                return change
            changes.append(change)
    return Revision(
        assessment=why,
        add=tuple(subtask for id_, subtask in new.items() if id_ not in old),
        revise=tuple(changes),
        drop=tuple(Drop(id=id_, why=why) for id_ in old if id_ not in new and id_ not in gone),
    )


def _change(old: Subtask, new: Subtask) -> Change | str:
    differing = {name: getattr(new, name) for name in CHANGEABLE if getattr(old, name) != getattr(new, name)}
    gone = [name for name, value in differing.items() if value is None]
    if gone:
        return f"{new.id}: {', '.join(gone)} can be changed, but not be taken away"
    return Change.model_validate({"id": new.id, **differing})
