"""The plan as a graph: each subtask below a dependency, with its status; and the versions with their reasons."""

from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.runs.run_follower import WatchedRun
from dashboards.runs.status_marks import Span, marked
from dashboards.terminal.widgets.lines import (
    BLANK,
    Column,
    Line,
    Page,
    PageOptions,
    Rows,
    heading,
    matches,
    table_page,
    wrapped,
)
from dashboards.text.formats import clock_in, counted
from dashboards.text.safe import safe
from fleet.core.plans.plan import Plan, Subtask
from fleet.core.policy.approval import waiting_for_approval
from fleet.core.state.state import RunState
from fleet.core.state.status import Status, statuses

COLUMNS = (
    Column("state", 11),
    Column("subtask", 24, grows=3),
    Column("title", 12, spare=2, grows=4),
    Column("also needs", 10, spare=4, grows=1),
    Column("attempts", 8, spare=1, to_right=True),
    Column("commit", 8, spare=3),
)
NAMES = 4


@dataclass(frozen=True, slots=True)
class Node:
    """A subtask in the graph."""

    spec: Subtask
    strokes: str
    """The lines that lead to it."""
    above: str | None


def graph(plan: Plan, parents: dict[str, str | None]) -> list[Node]:
    """Every subtask once: below what it was split from, its area, or its last dependency."""
    order = {id_: place for place, id_ in enumerate(plan.ids)}
    above: dict[str, str | None] = {}
    below: dict[str | None, list[Subtask]] = {}
    for spec in plan.subtasks:
        needs = [need for need in spec.depends_on if need in order]
        above[spec.id] = parents.get(spec.id) or max(needs, key=lambda need: order[need], default=None)
        below.setdefault(above[spec.id], []).append(spec)
    nodes: list[Node] = []
    pending = [(spec, "", "") for spec in reversed(below.get(None, []))]
    while pending:  # not recursive: a chain may be as long as the plan
        spec, strokes, indent = pending.pop()
        nodes.append(Node(spec, strokes, above[spec.id]))
        children = below.get(spec.id, [])
        for place, child in enumerate(reversed(children)):
            stroke, deeper = ("├ ", "│ ") if place else ("└ ", "  ")
            pending.append((child, indent + stroke, indent + deeper))
    return nodes


def plan_page(run: WatchedRun, state: RunState, options: PageOptions) -> Page:
    where, waits = statuses(state, run.now), frozenset(waiting_for_approval(state))
    nodes = [
        node
        for node in graph(state.plan, {id_: subtask.parent or subtask.area for id_, subtask in state.subtasks.items()})
        if matches(options.needle, node.spec.id, node.spec.title, where[node.spec.id])
    ]

    def cells(index: int) -> Sequence[Span]:
        node = nodes[index]
        status = where[node.spec.id]
        mark = ("? approve", "attention") if node.spec.id in waits else marked(status)
        return (mark, *_cells(state, node, status))

    return table_page(
        COLUMNS,
        [f"s:{node.spec.id}" for node in nodes],
        cells,
        below=() if options.needle else _versions(state, options),
        empty=options.no_rows("No plan yet: the planner is reading the repository."),
    )


def _cells(state: RunState, node: Node, status: Status) -> Sequence[Span]:
    subtask = state.subtasks[node.spec.id]
    others = [safe(need, limit=40) for need in node.spec.depends_on if need != node.above]
    attempts = len(subtask.attempts)
    tone = "dim" if status in {"dropped", "split"} else ""
    return (
        (node.strokes + safe(node.spec.id), tone),
        (safe(node.spec.title), tone),
        (", ".join(others), "dim"),
        (str(attempts or ""), "bold" if attempts > 1 else "dim"),
        (safe(subtask.landed or "")[:7], "dim"),
    )


def _versions(state: RunState, options: PageOptions) -> Rows:
    """The versions of the plan, the latest first; an opened one shows its whole reason."""
    if not state.versions:
        return ()
    rows: list[tuple[str, Line]] = [BLANK, ("", heading("VERSIONS", "with their reasons, latest first"))]
    plans = {version.plan.version: version.plan for version in state.versions}
    for version in reversed(state.versions):
        number = version.plan.version
        key, why = f"v:{number}", safe(version.why)
        changed = changes(plans.get(number - 1), version.plan)
        title = f"{clock_in(state, version.at)}  version {number}  by {safe(version.by, limit=40)}: {changed}"
        rows.append((key, ((title, "bold"), (f" — {why}", ""))))
        if key in options.opened:
            rows += [("", ((line, "dim"),)) for line in wrapped(f"        {why}", options.width - 2)]
    return rows


def changes(before: Plan | None, after: Plan) -> str:
    """What a version adds and changes, in numbers."""
    if before is None:
        return counted(len(after.subtasks), "subtask")
    old = {spec.id: spec for spec in before.subtasks}
    added = [spec.id for spec in after.subtasks if spec.id not in old]
    changed = [spec.id for spec in after.subtasks if spec.id in old and spec != old[spec.id]]
    parts = [f"{len(ids)} {word} ({_names(ids)})" for word, ids in (("added", added), ("changed", changed)) if ids]
    return ", ".join(parts) or "no new subtasks; some retried or dropped"


def _names(ids: Sequence[str]) -> str:
    return ", ".join(safe(id_, limit=40) for id_ in ids[:NAMES]) + ", …" * (len(ids) > NAMES)
