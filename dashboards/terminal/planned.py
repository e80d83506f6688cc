"""The plan as a graph: each subtask below what it waits for, with its state; and the versions, with their reasons."""

from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.terminal.lines import (
    Column,
    Line,
    Page,
    Span,
    Wish,
    head,
    heading,
    matches,
    row,
    shown,
    widths,
    wrapped,
)
from dashboards.terminal.words import clock_in, standing_span
from fleet.core.approval import waiting
from fleet.core.plan import Plan, Subtask
from fleet.core.standing import Standing, standings
from fleet.core.state import RunState, Version

COLUMNS = (
    Column("state", 11),
    Column("subtask", 24, grows=3),
    Column("title", 12, spare=2, grows=4),
    Column("also after", 10, spare=4, grows=1),
    Column("tries", 5, spare=1, to_right=True),
    Column("commit", 8, spare=3),
)


WAITS: Span = ("? approve", "warn")
"""Of a subtask that only a person's word lets begin."""


@dataclass(frozen=True, slots=True)
class Node:
    """A subtask and the strokes that lead to it."""

    spec: Subtask
    strokes: str
    above: str | None


def graph(plan: Plan, parents: dict[str, str | None]) -> list[Node]:
    """Every subtask once: below what it was split from, below its area, or below the last of what it waits for."""
    order = {id_: place for place, id_ in enumerate(plan.ids)}
    above: dict[str, str | None] = {}
    below: dict[str | None, list[Subtask]] = {}
    for spec in plan.subtasks:
        needs = [need for need in spec.depends_on if need in order]
        above[spec.id] = parents.get(spec.id) or (max(needs, key=lambda need: order[need]) if needs else None)
    for spec in plan.subtasks:
        below.setdefault(above[spec.id], []).append(spec)
    nodes: list[Node] = []
    pending = [(spec, "", None) for spec in reversed(below.get(None, []))]
    todo: list[tuple[Subtask, str, str | None]] = list(pending)
    last: dict[str, bool] = {}
    while todo:  # not recursive: a chain may be as long as the plan
        spec, lead, parent = todo.pop()
        stroke = "" if parent is None else "└ " if last[spec.id] else "├ "
        nodes.append(Node(spec, lead + stroke, parent))
        children = below.get(spec.id, [])
        deeper = lead if parent is None else lead + ("  " if last[spec.id] else "│ ")
        for place, child in enumerate(reversed(children)):
            last[child.id] = place == 0
            todo.append((child, deeper, spec.id))
    return nodes


def plan_page(state: RunState, now: float, wish: Wish) -> Page:
    where = standings(state, now)
    waits = frozenset(waiting(state))
    nodes = graph(state.plan, {id_: subtask.parent or subtask.area for id_, subtask in state.subtasks.items()})
    if wish.needle:
        nodes = [node for node in nodes if matches(wish.needle, node.spec.id, node.spec.title, where[node.spec.id])]
    versions: Sequence[Version] = () if wish.needle else tuple(reversed(state.versions))
    story = _version_lines(state, versions, wish) if versions else []

    def draw(index: int, width: int) -> Line:
        if index >= len(nodes):
            return story[index - len(nodes)][1]
        node = nodes[index]
        mark = WAITS if node.spec.id in waits else standing_span(where[node.spec.id])
        return row(COLUMNS, widths(COLUMNS, width), (mark, *_cells(state, node, where[node.spec.id])))

    return Page(
        keys=[f"s:{node.spec.id}" for node in nodes] + [key for key, _ in story],
        draw=draw,
        head=lambda width: head(COLUMNS, widths(COLUMNS, width)),
        empty="nothing matches" if wish.needle else "there is no plan yet: the planner reads the repository",
    )


def _cells(state: RunState, node: Node, where: Standing) -> tuple[Span, ...]:
    subtask = state.subtasks[node.spec.id]
    also = [shown(need, 40) for need in node.spec.depends_on if need != node.above]
    tries = len(subtask.attempts)
    tone = "dim" if where in {"dropped", "split"} else ""
    return (
        (node.strokes + shown(node.spec.id), tone),
        (shown(node.spec.title), tone),
        (", ".join(also), "dim"),
        (str(tries) if tries else "", "warn" if tries > 1 else "dim"),
        (shown(subtask.landed or "")[:7], "dim"),
    )


def _version_lines(state: RunState, versions: Sequence[Version], wish: Wish) -> list[tuple[str, Line]]:
    lines: list[tuple[str, Line]] = [("", ()), ("", heading("VERSIONS", "why the plan is as it is, the latest first"))]
    plans = {version.plan.version: version.plan for version in versions}
    for version in versions:
        number = version.plan.version
        changed = changes(plans.get(number - 1), version.plan)
        key = f"v:{number}"
        title = f"{clock_in(state, version.at)}  version {number}  by {shown(version.by, 40)}: {changed}"
        lines.append((key, ((title, "bold"), (f" — {shown(version.why)}", ""))))
        if key in wish.open:
            lines += [
                ("", ((f"        {piece}", "dim"),)) for piece in wrapped(shown(version.why, 2000), wish.width - 10)
            ]
    return lines


def changes(before: Plan | None, after: Plan) -> str:
    """What a version adds, takes away and describes anew, in numbers."""
    if before is None:
        return f"{len(after.subtasks)} subtasks"
    old = {spec.id: spec for spec in before.subtasks}
    new = {spec.id: spec for spec in after.subtasks}
    counted = {
        "added": [id_ for id_ in new if id_ not in old],
        "changed": [id_ for id_ in new if id_ in old and new[id_] != old[id_]],
    }
    parts = [f"{len(ids)} {word} ({_some(ids)})" for word, ids in counted.items() if ids]
    return ", ".join(parts) or "others are tried again or dropped"


def _some(ids: Sequence[str]) -> str:
    names = ", ".join(shown(id_, 40) for id_ in ids[:4])
    return names if len(ids) <= 4 else f"{names}, …"  # noqa: PLR2004 - a few are enough
