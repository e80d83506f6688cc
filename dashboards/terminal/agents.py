"""The table of agents: who is at work, on what, and what each does right now."""

from collections.abc import Callable
from dataclasses import dataclass

from dashboards.figures import count, money
from dashboards.terminal.lines import Column, Line, Page, Span, Wish, head, matches, row, shown, widths
from dashboards.terminal.words import age, model, phase, phase_span
from fleet.core.plan import PLANNER
from fleet.core.state import Attempt, RunState, SubtaskState
from fleet.core.usage import Spend

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
PHASE_ORDER = {"landing": 0, "checking": 1, "working": 2, "starting": 3}


@dataclass(frozen=True, slots=True)
class Agent:
    """One line of the table; without an attempt it is the planner."""

    subtask: SubtaskState | None
    attempt: Attempt | None


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


def agents(state: RunState, wish: Wish) -> list[Agent]:
    """The planner first, then the attempts that are under way, in the order that is wished for."""
    busy = list(state.underway())
    if wish.needle:
        busy = [(s, a) for s, a in busy if matches(wish.needle, s.id, a.doing, a.model or "", phase(a), a.worker)]
    key = ORDERS[wish.order or "busy"]
    busy.sort(key=lambda pair: key(*pair))  # type: ignore[arg-type,return-value] # each order compares its own kind
    planner = [Agent(None, None)] if state.planning.open is not None and matches(wish.needle, "planner") else []
    return [*planner, *(Agent(subtask, attempt) for subtask, attempt in busy)]


def agents_page(state: RunState, now: float, wish: Wish) -> Page:
    rows = agents(state, wish)
    order = wish.order or "busy"

    def draw(index: int, width: int) -> Line:
        return row(COLUMNS, widths(COLUMNS, width), cells(state, rows[index], now))

    return Page(
        keys=[f"s:{agent.subtask.id}" if agent.subtask else "planner" for agent in rows],
        draw=draw,
        head=lambda width: head(COLUMNS, widths(COLUMNS, width), order),
        empty="no agent matches" if wish.needle else "no agent is at work",
    )


def cells(state: RunState, agent: Agent, now: float) -> tuple[Span, ...]:
    if agent.subtask is None or agent.attempt is None:
        return _planner(state)
    attempt = agent.attempt
    if attempt.worker == PLANNER:
        return _area(state, agent.subtask, attempt, now)
    spend = attempt.spend
    return (
        phase_span(attempt),
        (_name(agent.subtask.id, attempt), ""),
        (shown(model(attempt.model)), "dim"),
        (str(attempt.turn or ""), "dim"),
        (_doing(attempt), ""),
        (count(spend.usage.total) if spend.calls else "", "dim"),
        (money(spend.dollars) if spend.calls else "", "dim"),
        (age(now - attempt.started_at), ""),
    )


def _name(id_: str, attempt: Attempt) -> str:
    return shown(id_) if attempt.number == 1 else f"{shown(id_)} #{attempt.number}"


def _doing(attempt: Attempt) -> str:
    if attempt.commit is not None:
        return "waits to land" if attempt.verified else "its checks run"
    if attempt.doing:
        return doing(attempt.doing)
    return "thinks" if attempt.working else "gets its worktree"


def _area(state: RunState, area: SubtaskState, attempt: Attempt, now: float) -> tuple[Span, ...]:
    """A planner of a part of the epic."""
    planning = state.areas.get(area.id)
    busy = planning is not None and planning.open is not None
    said = doing(planning.doing) or f"thinks: {shown(planning.why)}" if planning is not None and busy else ""
    return (
        ("● planning" if busy else "○ waits", "accent" if busy else "dim"),
        (f"{_name(area.id, attempt)} (area)", ""),
        (shown(model(attempt.model)), "dim"),
        (str(planning.turn or "") if planning is not None else "", "dim"),
        (said or "its subtasks are worked on", ""),
        (count(attempt.spend.usage.total) if attempt.spend.calls else "", "dim"),
        (money(attempt.spend.dollars) if attempt.spend.calls else "", "dim"),
        (age(now - attempt.started_at), ""),
    )


def doing(text: str) -> str:
    """What an agent does, with the tools' long names shortened."""
    return shown(text, 200).replace("str_replace_based_edit_tool", "edit")


def _planner(state: RunState) -> tuple[Span, ...]:
    planning, spend = state.planning, state.spend.get("planner", Spend())
    return (
        ("● planning", "accent"),
        (f"planner #{planning.open}", ""),
        ("", ""),
        (str(planning.turn or ""), "dim"),
        (doing(planning.doing) or f"thinks: {shown(planning.why)}", ""),
        (count(spend.usage.total), "dim"),
        (money(spend.dollars), "dim"),
        ("", ""),
    )
