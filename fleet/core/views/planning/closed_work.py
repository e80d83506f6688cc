"""Closed subtasks in a few lines, for a planner whose run has more of them than a prompt should list.

They are counted by area: an area with a planner of its own, or else the folder that they changed.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NotRequired, TypedDict

from fleet.core.base.ids import SubtaskId
from fleet.core.plans.plan import PLANNER, Subtask
from fleet.core.state.areas import inside
from fleet.core.state.state import RunState

GROUPS = 40  # areas and folders; the smallest are counted together
RESULT = 240  # characters of what became of one
LATEST, TITLE = 4, 60  # subtasks named in it, and characters of each title
DEPTHS = (3, 2, 1)  # components of a folder's name: fewer where there would be too many folders
GLOB = frozenset("*?[")
ROOT, OTHERS = "(top of the repository)", "(others)"


class ClosedGroup(TypedDict):
    """Closed subtasks of one area, or of one folder."""

    area: str
    merged: int
    dropped: NotRequired[int]
    result: str


class ClosedWork(TypedDict):
    """The closed subtasks that are not listed."""

    count: int
    reported_since_last_call: NotRequired[int]
    """How many of them were."""
    summary: list[ClosedGroup]


def closed_work(state: RunState, ids: Sequence[SubtaskId], *, reported: int = 0) -> ClosedWork:
    """A summary of these closed subtasks."""
    areas = [id_ for id_ in ids if state.spec(id_).worker == PLANNER]
    others = [id_ for id_ in ids if state.spec(id_).worker != PLANNER]
    groups = [_area(state, id_) for id_ in areas] + [
        _folder(state, name, members) for name, members in _by_folder(state, others).items()
    ]
    groups.sort(key=lambda group: -group["merged"])
    work = ClosedWork(count=len(ids), summary=[*groups[:GROUPS], *_together(groups[GROUPS:])])
    if reported:
        work["reported_since_last_call"] = reported
    return work


def _area(state: RunState, area: SubtaskId) -> ClosedGroup:
    """All of an area's subtasks, those of areas in it included, and its planner's synthesis."""
    last = state.subtasks[area].last
    return _counted(
        state,
        area,
        [area, *state.subtasks.first(inside(state, area))],
        last.report.summary if last and last.report else "",
    )


def _folder(state: RunState, name: str, ids: Sequence[SubtaskId]) -> ClosedGroup:
    landed = sorted((_landed_at(state, id_), id_) for id_ in ids if state.subtasks[id_].landed is not None)
    latest = (f"{id_} ({state.spec(id_).title[:TITLE]})" for _, id_ in reversed(landed[-LATEST:]))
    return _counted(state, name, ids, f"latest: {', '.join(latest)}" if landed else "")


def _counted(state: RunState, name: str, ids: Sequence[SubtaskId], result: str) -> ClosedGroup:
    merged = sum(state.subtasks[id_].landed is not None for id_ in ids)
    closed = sum(state.subtasks[id_].closed for id_ in ids)
    group = ClosedGroup(area=name, merged=merged, result=result[:RESULT])
    if closed > merged:
        group["dropped"] = closed - merged
    return group


def _together(groups: Sequence[ClosedGroup]) -> list[ClosedGroup]:
    if not groups:
        return []
    names = ", ".join(group["area"] for group in groups)
    merged = sum(group["merged"] for group in groups)
    return [ClosedGroup(area=OTHERS, merged=merged, result=f"{len(groups)} more: {names}"[:RESULT])]


def _landed_at(state: RunState, id_: SubtaskId) -> float:
    last = state.subtasks[id_].last
    return last.ended_at or 0.0 if last is not None else 0.0


def _by_folder(state: RunState, ids: Iterable[SubtaskId]) -> Mapping[str, list[SubtaskId]]:
    folders = {id_: _folder_of(state.spec(id_)) for id_ in ids}
    groups: dict[str, list[SubtaskId]] = {}
    for depth in DEPTHS:
        groups = {}
        for id_, parts in folders.items():
            groups.setdefault("/".join(parts[:depth]) or ROOT, []).append(id_)
        if len(groups) <= GROUPS:
            break
    return groups


def _folder_of(spec: Subtask) -> tuple[str, ...]:
    """The folder of the first path that a subtask may change."""
    if not spec.touches:
        return ()
    *folders, _ = spec.touches[0].split("/")
    named = next((at for at, part in enumerate(folders) if GLOB & set(part)), len(folders))
    return tuple(folders[:named])
