"""The table of agents: each with its subtask and what it is doing now."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dashboards.run_follower import WatchedRun
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
from fleet.core.base.usage import Spend
from fleet.core.plans.plan import PLANNER
from fleet.core.state.state import Planning, RunState
from fleet.core.state.status import Phase, phase
from fleet.core.state.subtasks import Attempt, SubtaskState
from fleet.read.nodes_view import NodeStatus, NodeUseView, node_views, waiting_for_machines

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
PHASE_ORDER: dict[Phase, int] = {"landing": 0, "checking": 1, "working": 2, "starting": 3, "planning": 4}
ORDERS: dict[str, Callable[[SubtaskState, Attempt], object]] = {
    "busy": lambda _, attempt: (attempt.commit is not None, attempt.started_at),
    "age": lambda _, attempt: attempt.started_at,
    "subtask": lambda subtask, _: subtask.id,
    "state": lambda _, attempt: (PHASE_ORDER[phase(attempt)], attempt.started_at),
    "turn": lambda _, attempt: -attempt.turn,
    "tokens": lambda _, attempt: -attempt.spend.usage.total,
    "cost": lambda _, attempt: -attempt.spend.priced_dollars,
    "model": lambda _, attempt: attempt.model or "",
    "doing": lambda _, attempt: attempt.doing,
}


def columns_of(state: RunState) -> tuple[Column, ...]:
    """Where a run has nodes, with the one of each attempt."""
    return (*COLUMNS[:2], NODE, *COLUMNS[2:]) if state.nodes else COLUMNS


@dataclass(frozen=True, slots=True)
class Agent:
    """An attempt under way."""

    subtask: SubtaskState
    attempt: Attempt


def agents(run: WatchedRun, state: RunState, options: PageOptions) -> list[Agent | None]:
    """The planner (None) first, then the attempts under way in the wanted order. A run without a process has none."""
    if not run.alive:
        return []
    busy = [
        Agent(subtask, attempt)
        for subtask, attempt in state.underway()
        if matches(
            options.needle, subtask.id, attempt.doing, attempt.model or "", phase(attempt), attempt.worker, attempt.node
        )
    ]
    key = ORDERS[options.order or "busy"]
    busy.sort(key=lambda agent: key(agent.subtask, agent.attempt), reverse=options.is_reversed)  # type: ignore[arg-type,return-value] # one kind each
    has_planner = state.planning.open is not None and matches(options.needle, "planner")
    return [None, *busy] if has_planner else [*busy]


def agents_page(run: WatchedRun, state: RunState, options: PageOptions) -> Page:
    rows = agents(run, state, options)
    return table_page(
        columns_of(state),
        [agent_key(agent) for agent in rows],
        lambda index: agent_cells(state, rows[index], run.now),
        sorted_by=options.order or "busy",
        is_reversed=options.is_reversed,
        empty=options.no_rows("No agents running."),
    )


def agent_key(agent: Agent | None) -> str:
    return "planner" if agent is None else f"s:{agent.subtask.id}"


def agent_cells(state: RunState, agent: Agent | None, now: float) -> Sequence[Span]:
    """A row for `columns_of` the run."""
    cells = _agent_cells(state, agent, now)
    if not state.nodes:
        return cells
    node = agent.attempt.node if agent is not None else ""
    return (*cells[:2], (safe(node), "dim"), *cells[2:])


def _agent_cells(state: RunState, agent: Agent | None, now: float) -> Sequence[Span]:
    if agent is None:
        planner, spend = state.planning, state.spend.get("planner", Spend())
        name, doing = f"planner #{planner.open}", _planning(planner)
        return _cells(marked("planning"), name, doing, turn=planner.turn, spend=spend)
    subtask, attempt = agent.subtask, agent.attempt
    name = safe(subtask.id) if attempt.number == 1 else f"{safe(subtask.id)} #{attempt.number}"
    mark, doing, turn = marked(phase(attempt)), _doing(attempt), attempt.turn
    if attempt.worker == PLANNER:
        area = state.areas.get(subtask.id, Planning())
        name, turn = f"{name} (area)", area.turn
        is_busy = area.open is not None
        mark = marked("planning") if is_busy else ("○ waiting", "dim")
        doing = _planning(area) if is_busy else "its subtasks are under way"
    model, seconds = attempt.model or "", now - attempt.started_at
    return _cells(mark, name, doing, turn=turn, spend=attempt.spend, model=model, seconds=seconds)


def _cells(
    mark: Span, name: str, doing: str, *, turn: int, spend: Spend, model: str = "", seconds: float | None = None
) -> Sequence[Span]:
    return (
        mark,
        (name, ""),
        (safe(model_name(model)), "dim"),
        (str(turn or ""), "dim"),
        (safe(doing, limit=200), ""),
        (count(spend.usage.total) if spend.calls else "", "dim"),
        (money(spend.dollars) if spend.calls else "", "dim"),
        (age(seconds) if seconds is not None else "", ""),
    )


def _doing(attempt: Attempt) -> str:
    if attempt.commit is not None:
        return "waiting to land" if attempt.verified else "running its checks"
    return activity_of(attempt) or ("waiting for model" if attempt.working else "preparing worktree")


def _planning(planner: Planning) -> str:
    return activity_of(planner) or f"waiting for model ({planner.why})"


# ---- nodes -----------------------------------------------------------------------------------------------------------
# The machines beside this one: what each works on, and what is wrong with it; and the subtasks that wait for one.


NODES_COLUMNS = (
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
        NODES_COLUMNS,
        [f"n:{view.name}" for view in views],
        lambda index: _nodes_cells(views[index]),
        below=page_of(_waiting(run, state, options)),
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


def _waiting(run: WatchedRun, state: RunState, options: PageOptions) -> Rows:
    """The subtasks that wait for a machine, each with the reason."""
    found = waiting_for_machines(state, run.now)
    rows: list[tuple[str, tuple[Span, ...]]] = [
        (f"s:{id_}", ((f"  ○ {safe(id_, limit=40):<24} ", ""), (safe(why, limit=200), "dim")))
        for id_, why in found.items()
        if matches(options.needle, id_, why)
    ]
    return [BLANK, ("", heading(f"WAITING {len(rows)}", "for a machine with their labels")), *rows] if rows else []
