"""The machines beside this one: what each works on, and what is wrong with it; and the subtasks that wait for one."""

from collections.abc import Sequence

from dashboards.runs.run_follower import WatchedRun
from dashboards.runs.status_marks import Span
from dashboards.terminal.widgets.lines import (
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
from dashboards.text.safe import safe
from fleet.core.state.state import RunState
from fleet.core.views.run.nodes_view import NodeStatus, NodeUseView, node_views, waiting_for_machines

COLUMNS = (
    Column("state", 11),
    Column("node", 12, grows=2),
    Column("at work", 9, to_right=True),
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
    "out": ("✘ out", "bad"),
    "banned": ("✘ banned", "bad"),
}
NONE = "No nodes: `fleet nodes add NAME` lets a machine of [nodes.NAME] join."


def nodes_page(run: WatchedRun, state: RunState, options: PageOptions) -> Page:
    views = [
        view
        for view in node_views(state, alive=run.alive)
        if matches(options.needle, view.name, view.status, view.host or "", *view.labels)
    ]
    return table_page(
        COLUMNS,
        [f"n:{view.name}" for view in views],
        lambda index: _cells(views[index]),
        below=page_of(_waiting(run, state, options)),
        empty=options.no_rows(NONE),
    )


def _cells(view: NodeUseView) -> Sequence[Span]:
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


def _waiting(run: WatchedRun, state: RunState, options: PageOptions) -> Rows:
    """The subtasks that wait for a machine, each with the reason."""
    found = waiting_for_machines(state, run.now)
    rows: list[tuple[str, tuple[Span, ...]]] = [
        (f"s:{id_}", ((f"  ○ {safe(id_, limit=40):<24} ", ""), (safe(why, limit=200), "dim")))
        for id_, why in found.items()
        if matches(options.needle, id_, why)
    ]
    return [BLANK, ("", heading(f"WAITING {len(rows)}", "for a machine with their labels")), *rows] if rows else []
