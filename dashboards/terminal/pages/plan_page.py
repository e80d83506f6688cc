"""The plan as a graph: each subtask below a dependency, with its status; and the versions with their reasons."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter

from rich.cells import cell_len

from dashboards.run_follower import WatchedRun
from dashboards.subtask_map import Span, marked
from dashboards.terminal.lines import (
    BLANK,
    Column,
    Line,
    Page,
    PageOptions,
    heading,
    matches,
    table_page,
    wrapped,
)
from dashboards.text.formats import clock_in, counted
from dashboards.text.safe import safe
from fleet.core.base.ids import SubtaskId
from fleet.core.plans.plan import Plan, Subtask
from fleet.core.policy.requests import unapproved
from fleet.core.state.state import RunState, Version
from fleet.core.state.status import Status, status_of
from fleet.core.state.subtasks import Mark

# ---- waiting ---------------------------------------------------------------------------------------------------------
# What waits for each open subtask, and the longest chain of open subtasks: the run takes at least as long as that.


SHORTEST_CHAIN = 2  # one subtask is no chain


@dataclass(frozen=True, slots=True)
class Waiting:
    """How the open subtasks of a plan wait for each other."""

    counts: Mapping[SubtaskId, int]
    """How many wait for it, through others or not."""
    chain: frozenset[SubtaskId]
    """The longest chain, which is the critical path where all take the same time."""


def waiting(plan: Plan, open_: Collection[SubtaskId]) -> Waiting:
    needs = {spec.id: [need for need in spec.depends_on if need in open_] for spec in plan.subtasks if spec.id in open_}
    behind: dict[SubtaskId, list[SubtaskId]] = {id_: [] for id_ in needs}
    for id_, each in needs.items():
        for need in each:
            behind[need].append(id_)
    bits = {id_: 1 << place for place, id_ in enumerate(needs)}
    sets, lengths = dict[SubtaskId, int](), dict[SubtaskId, int]()
    for id_ in reversed(tuple(TopologicalSorter(needs).static_order())):
        sets[id_], lengths[id_] = 0, 1
        for other in behind[id_]:
            sets[id_] |= sets[other] | bits[other]
            lengths[id_] = max(lengths[id_], lengths[other] + 1)
    counts = {id_: members.bit_count() for id_, members in sets.items()}
    return Waiting(counts, frozenset(_longest(behind, lengths)))


def _longest(behind: Mapping[SubtaskId, Sequence[SubtaskId]], lengths: Mapping[SubtaskId, int]) -> list[SubtaskId]:
    here = max(lengths, key=lengths.__getitem__, default=None)
    if here is None or lengths[here] < SHORTEST_CHAIN:
        return []
    chain = [here]
    while behind[here]:
        here = max(behind[here], key=lengths.__getitem__)
        chain.append(here)
    return chain


# ---- plan ------------------------------------------------------------------------------------------------------------


TITLE, LONGEST = "subtask", 0.4  # of the width, for the names of subtasks with the strokes before them
COLUMNS = (
    Column("state", 11),
    Column(TITLE, 24),
    Column("title", 12, spare=2, grows=4),
    Column("also needs", 10, spare=5, grows=2),
    Column("holds up", 10, spare=4),
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
    key: str


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
        nodes.append(Node(spec, strokes, above[spec.id], f"s:{spec.id}"))
        children = below.get(spec.id, [])
        for place, child in enumerate(reversed(children)):
            stroke, deeper = ("├ ", "│ ") if place else ("└ ", "  ")
            pending.append((child, indent + stroke, indent + deeper))
    return nodes


def _graph_of(state: RunState) -> list[Node]:
    """The same for the plan of a run. What a subtask was split from and its area are as old as the plan's version."""
    return graph(state.plan, {id_: subtask.parent or subtask.area for id_, subtask in state.subtasks.items()})


def plan_page(run: WatchedRun, state: RunState, options: PageOptions) -> Page:
    nodes, waits = run.derive("graph", state.plan, lambda: _graph_of(state)), unapproved(state)
    if options.needle:
        nodes = [
            node
            for node in nodes
            if matches(options.needle, node.spec.id, node.spec.title, status_of(state, node.spec.id, run.now))
        ]

    open_ = state.subtasks.all & ~state.subtasks.marked(Mark.CLOSED)
    held = run.derive(
        f"waiting {state.plan.version}", state.subtasks.marked(Mark.CLOSED), lambda: _waiting(state, open_)
    )
    longest = run.derive(
        "names", nodes, lambda: max((cell_len(node.strokes + node.spec.id) for node in nodes), default=0)
    )
    names = min(max(longest, 12), int(options.width * LONGEST))

    def cells(index: int) -> Sequence[Span]:
        node = nodes[index]
        status = status_of(state, node.spec.id, run.now)
        is_waiting = waits >> state.subtasks.plan.bits[node.spec.id] & 1
        return (("? approve", "attention") if is_waiting else marked(status), *_cells(state, node, status, held))

    return table_page(
        [replace(column, width=names) if column.title == TITLE else column for column in COLUMNS],
        [node.key for node in nodes],
        cells,
        below=None if options.needle else _versions(state, options),
        empty=options.no_rows("No plan yet: the planner is reading the repository."),
    )


def _waiting(state: RunState, open_: int) -> Waiting:
    bits = state.subtasks.plan.bits
    return waiting(state.plan, {id_ for id_ in state.plan.ids if open_ >> bits[id_] & 1})


def _cells(state: RunState, node: Node, status: Status, held: Waiting) -> Sequence[Span]:
    subtask = state.subtasks[node.spec.id]
    others = [safe(need, limit=40) for need in node.spec.depends_on if need != node.above]
    attempts = len(subtask.attempts)
    tone = "dim" if status in {"dropped", "split"} else ""
    count, is_on_chain = held.counts.get(node.spec.id, 0), node.spec.id in held.chain
    return (
        (node.strokes + safe(node.spec.id), tone),
        (safe(node.spec.title), tone),
        (", ".join(others), "dim"),
        (f"{count or ''} {'critical' if is_on_chain else ''}".strip(), "bold" if is_on_chain else "dim"),
        (str(attempts or ""), "bold" if attempts > 1 else "dim"),
        (safe(subtask.landed or "")[:7], "dim"),
    )


def _versions(state: RunState, options: PageOptions) -> Page | None:
    """The versions of the plan, the latest first; an opened one shows its whole reason."""
    versions = state.versions
    if not versions:
        return None
    rows: list[tuple[str, int | Line]] = [BLANK, ("", heading("VERSIONS", "with their reasons, latest first"))]
    for place in range(len(versions) - 1, -1, -1):
        key = f"v:{versions[place].plan.version}"
        rows.append((key, place))
        if key in options.opened:
            why = wrapped(f"        {safe(versions[place].why)}", options.width - 2)
            rows += [("", ((line, "dim"),)) for line in why]

    def draw(index: int, _: int) -> Line:
        row = rows[index][1]
        if not isinstance(row, int):
            return row
        return _version(state, versions[row - 1] if row else None, versions[row])

    return Page(keys=[key for key, _ in rows], draw=draw)


def _version(state: RunState, before: Version | None, version: Version) -> Line:
    by, at = safe(version.by, limit=40), clock_in(state, version.at)
    title = f"{at}  version {version.plan.version}  by {by}: {changes(before, version)}"
    return ((title, "bold"), (f" — {safe(version.why)}", ""))


def changes(before: Version | None, after: Version) -> str:
    """What a version adds and changes, in numbers. New subtasks come last."""
    if before is None:
        return counted(len(after.plan.subtasks), "subtask")
    old = len(after.changed) - (len(after.plan.subtasks) - len(before.plan.subtasks))
    changed, added = after.changed[:old], after.changed[old:]
    parts = [
        f"{len(specs)} {word} ({_names(specs)})" for word, specs in (("added", added), ("changed", changed)) if specs
    ]
    return ", ".join(parts) or "no new subtasks; some retried or dropped"


def _names(specs: Sequence[Subtask]) -> str:
    return ", ".join(safe(spec.id, limit=40) for spec in specs[:NAMES]) + ", …" * (len(specs) > NAMES)
