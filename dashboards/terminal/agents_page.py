"""The table of agents, with their subtasks and current activity."""

from collections.abc import Sequence

from dashboards.subtask_map import Span, age, marked, model_name
from dashboards.terminal.lines import (
    BLANK,
    Column,
    Page,
    PageOptions,
    Rows,
    heading,
    matches,
    page_of,
    table_page,
)
from dashboards.text.formats import activity_of, count, money
from dashboards.text.safe import safe
from fleet.read.agent_rows import AgentRow, NodeStatus, NodeUseView
from fleet.read.follow import FollowedRun
from fleet.read.run import RunSnapshot

COLUMNS = (
    Column("state", 10),
    Column("subtask", 16, grows=2),
    Column("model", 10, spare=2),
    Column("turn", 5, spare=1, to_right=True),
    Column("doing", 14, grows=5),
    Column("tokens", 7, spare=3, to_right=True),
    Column("cost", 8, spare=4, to_right=True),
    Column("age", 6, to_right=True),
)
NODE = Column("node", 8, spare=2)


def columns_of(snapshot: RunSnapshot) -> tuple[Column, ...]:
    """The columns of the table. Includes the node if the run has nodes."""
    return (*COLUMNS[:2], NODE, *COLUMNS[2:]) if snapshot.figures.has_nodes else COLUMNS


def agents(snapshot: RunSnapshot, options: PageOptions) -> list[AgentRow]:
    """The planner, then the running attempts in the chosen order."""
    rows = snapshot.agents(options.order, is_reversed=options.is_reversed)
    return [row for row in rows if matches(options.needle, *_words(row))] if options.needle else [*rows]


def _words(row: AgentRow) -> Sequence[str]:
    if row.subtask is None:
        return ("planner",)
    return row.subtask, row.doing, row.model, row.phase, row.worker, row.node


def agents_page(run: FollowedRun, snapshot: RunSnapshot, options: PageOptions) -> Page:
    del run
    rows = agents(snapshot, options)
    return table_page(
        columns_of(snapshot),
        [agent_key(row) for row in rows],
        lambda index: agent_cells(snapshot, rows[index]),
        sorted_by=options.order,
        is_reversed=options.is_reversed,
        empty=options.no_rows("No agents running."),
    )


def agent_key(row: AgentRow) -> str:
    return "planner" if row.subtask is None else f"s:{row.subtask}"


def agent_cells(snapshot: RunSnapshot, row: AgentRow) -> Sequence[Span]:
    """A row for `columns_of` the run."""
    cells = _agent_cells(row, snapshot.now)
    return (*cells[:2], (safe(row.node), "dim"), *cells[2:]) if snapshot.figures.has_nodes else cells


def _agent_cells(row: AgentRow, now: float) -> Sequence[Span]:
    spend = row.spend
    mark = ("○ waiting", "dim") if row.is_area and not row.is_called else marked(row.phase)
    return (
        mark,
        (_name(row), ""),
        (safe(model_name(row.model)), "dim"),
        (str(row.turn or ""), "dim"),
        (safe(_doing(row), limit=200), ""),
        (count(spend.usage.total) if spend.calls else "", "dim"),
        (money(spend.dollars) if spend.calls else "", "dim"),
        (age(now - row.since) if row.since is not None else "", ""),
    )


def _name(row: AgentRow) -> str:
    if row.subtask is None:
        return f"planner #{row.number}"
    name = safe(row.subtask) if row.number == 1 else f"{safe(row.subtask)} #{row.number}"
    return f"{name} (area)" if row.is_area else name


def _doing(row: AgentRow) -> str:
    if row.is_called:
        return activity_of(row) or f"waiting for model ({row.call_why})"
    if row.is_area:
        return "its subtasks are running"
    if row.phase in {"landing", "checking"}:
        return "waiting to land" if row.phase == "landing" else "running its checks"
    return activity_of(row) or ("waiting for model" if row.phase == "working" else "preparing worktree")


# ---- nodes -----------------------------------------------------------------------------------------------------------
# The nodes of a run with their work and problems, and the subtasks that wait for one.


NODES_COLUMNS = (
    Column("state", 13),
    Column("node", 12, grows=2),
    Column("busy", 9, to_right=True),
    Column("attempts", 8, spare=2, to_right=True),
    Column("lost", 4, spare=3, to_right=True),
    Column("host", 12, spare=4, grows=1),
    Column("clock", 8, spare=5, to_right=True),
    Column("labels", 8, spare=1, grows=1),
    Column("why", 10, grows=4),
)
MARKS: dict[NodeStatus, Span] = {
    "connected": ("● connected", "good"),
    "drained": ("◌ drained", "dim"),
    "unavailable": ("✘ unavailable", "bad"),
    "banned": ("✘ banned", "bad"),
}
NONE = "No nodes. Add one configured in [nodes.NAME] with `fleet nodes add NAME`."


def nodes_page(run: FollowedRun, snapshot: RunSnapshot, options: PageOptions) -> Page:
    del run
    views = [
        view
        for view in snapshot.nodes
        if matches(options.needle, view.name, view.status, view.host or "", *view.labels)
    ]
    return table_page(
        NODES_COLUMNS,
        [f"n:{view.name}" for view in views],
        lambda index: _nodes_cells(views[index]),
        below=page_of(_waiting(snapshot, options)),
        empty=options.no_rows(NONE),
    )


def _nodes_cells(view: NodeUseView) -> Sequence[Span]:
    return (
        MARKS[view.status],
        (safe(view.name), ""),
        (f"{view.working} of {view.workers}" if view.workers is not None else "", ""),
        (str(view.attempts or ""), "dim"),
        (str(view.failed or ""), "bad"),
        (safe(view.host or "", limit=60), "dim"),
        (f"{view.skew_s:+.1f} s" if view.skew_s is not None else "", "dim"),
        (", ".join(map(safe, view.labels)), ""),
        (safe(view.why, limit=200), "dim"),
    )


def _waiting(snapshot: RunSnapshot, options: PageOptions) -> Rows:
    """The subtasks that wait for a machine, each with the reason."""
    rows: list[tuple[str, tuple[Span, ...]]] = [
        (f"s:{id_}", ((f"  ○ {safe(id_, limit=40):<24} ", ""), (safe(why, limit=200), "dim")))
        for id_, why in snapshot.waiting_for_machines.items()
        if matches(options.needle, id_, why)
    ]
    return [BLANK, ("", heading(f"WAITING {len(rows)}", "for a machine with matching labels")), *rows] if rows else []
