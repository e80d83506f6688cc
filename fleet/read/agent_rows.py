"""The agents at work: the run's planner while it is called, and every attempt under way."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from fleet.core.base.ids import SubtaskId
from fleet.core.base.usage import Spend
from fleet.core.plans.plan import PLANNER
from fleet.core.state.state import Planning, RunState
from fleet.core.state.status import Phase, phase
from fleet.core.state.subtasks import Attempt, SubtaskState

AgentOrder = Literal["busy", "age", "subtask", "state", "turn", "tokens", "cost", "model", "doing"]


@dataclass(frozen=True, slots=True)
class AgentRow:
    """One agent. Its texts are untrusted."""

    subtask: SubtaskId | None
    """None: the run's planner."""
    number: int
    """Of the attempt, or of the planner's call."""
    worker: str
    node: str
    """The node that works on it; empty: the manager's machine."""
    model: str
    """Empty while none was called."""
    phase: Phase
    is_called: bool
    """Whether a planner is being called: that of an area rests while its subtasks are under way."""
    call_why: str
    """Why the planner is called; empty for workers."""
    turn: int
    doing: str
    """The tool that runs now; empty while it waits for the model."""
    said: str
    """What its model said last."""
    spend: Spend
    since: float | None
    """When the attempt started; None for the run's planner."""

    @property
    def is_area(self) -> bool:
        """Whether it is the planner of an area."""
        return self.subtask is not None and self.worker == PLANNER


PHASE_ORDER: Mapping[Phase, int] = {"landing": 0, "checking": 1, "working": 2, "starting": 3, "planning": 4}
ORDERS: Mapping[AgentOrder, Callable[[SubtaskState, Attempt], object]] = {
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
"""How agents can be ordered. `busy`: the longest at work first, and after them those whose work is checked or waits."""


def agent_rows(state: RunState, order: AgentOrder = "busy", *, is_reversed: bool = False) -> list[AgentRow]:
    """The run's planner first, whatever the order."""
    key = ORDERS[order]
    busy = sorted(state.underway(), key=lambda pair: key(*pair), reverse=is_reversed)  # type: ignore[arg-type,return-value] # one kind each
    planner = [] if state.planning.open is None else [_planner(state, state.planning, state.planning.open)]
    return planner + [_row(state, subtask, attempt) for subtask, attempt in busy]


def _planner(state: RunState, planning: Planning, number: int) -> AgentRow:
    return AgentRow(
        subtask=None,
        number=number,
        worker=PLANNER,
        node="",
        model="",
        phase="planning",
        is_called=True,
        call_why=planning.why,
        turn=planning.turn,
        doing=planning.doing,
        said=planning.said,
        spend=state.spend.get("planner", Spend()),
        since=None,
    )


def _row(state: RunState, subtask: SubtaskState, attempt: Attempt) -> AgentRow:
    """What the planner of an area does is kept with the area."""
    area = state.areas.get(subtask.id, Planning()) if attempt.worker == PLANNER else None
    agent = area or attempt
    return AgentRow(
        subtask=subtask.id,
        number=attempt.number,
        worker=attempt.worker,
        node=attempt.node,
        model=attempt.model or "",
        phase=phase(attempt),
        is_called=area is not None and area.open is not None,
        call_why=area.why if area is not None else "",
        turn=agent.turn,
        doing=agent.doing,
        said=agent.said,
        spend=attempt.spend,
        since=attempt.started_at,
    )
