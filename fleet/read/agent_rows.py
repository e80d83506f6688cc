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
    """One agent. There may be a thousand of them, so only what is shown is looked up. Its texts are untrusted."""

    subtask: SubtaskId | None
    """None: the run's planner."""
    _attempt: Attempt | None
    _planning: Planning | None
    """Of a planner: the run's or that of an area."""
    _spent: Spend = Spend()
    """By the run's planner."""

    @property
    def number(self) -> int:
        """Of the attempt, or of the planner's call."""
        return self._attempt.number if self._attempt is not None else self._call or 0

    @property
    def _call(self) -> int | None:
        return self._planning.open if self._planning is not None else None

    @property
    def worker(self) -> str:
        return self._attempt.worker if self._attempt is not None else PLANNER

    @property
    def is_area(self) -> bool:
        """Whether it is the planner of an area."""
        return self._attempt is not None and self._planning is not None

    @property
    def is_called(self) -> bool:
        """Whether a planner is being called: that of an area rests while its subtasks are under way."""
        return self._call is not None

    @property
    def call_why(self) -> str:
        """Why the planner is called; empty for workers."""
        return self._planning.why if self._planning is not None else ""

    @property
    def node(self) -> str:
        """The node that works on it; empty: the manager's machine."""
        return self._attempt.node if self._attempt is not None else ""

    @property
    def model(self) -> str:
        """Empty while none was called."""
        return self._attempt.model or "" if self._attempt is not None else ""

    @property
    def phase(self) -> Phase:
        return phase(self._attempt) if self._attempt is not None else "planning"

    @property
    def turn(self) -> int:
        return self._agent.turn if self._agent is not None else 0

    @property
    def doing(self) -> str:
        """The tool that runs now; empty while it waits for the model."""
        return self._agent.doing if self._agent is not None else ""

    @property
    def said(self) -> str:
        """What its model said last."""
        return self._agent.said if self._agent is not None else ""

    @property
    def _agent(self) -> Attempt | Planning | None:
        """What the planner of an area does is kept with the area."""
        return self._planning or self._attempt

    @property
    def spend(self) -> Spend:
        return self._attempt.spend if self._attempt is not None else self._spent

    @property
    def since(self) -> float | None:
        """When the attempt started; None for the run's planner."""
        return self._attempt.started_at if self._attempt is not None else None


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
    planner = AgentRow(None, None, state.planning, state.spend.get("planner", Spend()))
    rows = [AgentRow(subtask.id, attempt, _area(state, subtask, attempt)) for subtask, attempt in busy]
    return rows if state.planning.open is None else [planner, *rows]


def _area(state: RunState, subtask: SubtaskState, attempt: Attempt) -> Planning | None:
    return state.areas.get(subtask.id, Planning()) if attempt.worker == PLANNER else None
