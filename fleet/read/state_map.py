"""All subtasks at one look: what each of them is doing, in as many cells as there is room for.

A cell stands for as many subtasks as are needed for that, and shows the state that needs the most attention. Sets make
this cost what is in sight, not the size of the plan.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from fleet.core.state.state import RunState
from fleet.core.state.status import phase
from fleet.core.state.subtasks import Mark, Set

State = Literal[
    "asks", "failed", "working", "planning", "checking", "landing", "starting", "ready", "waiting", "landed", "gone"
]
STATES: tuple[State, ...] = (
    *("asks", "failed", "working", "planning", "checking", "landing"),
    *("starting", "ready", "waiting", "landed", "gone"),
)
"""The most urgent first: a cell of several subtasks shows this one. `gone` is split or dropped."""


@dataclass(frozen=True, slots=True)
class SubtaskMap:
    """The cells in the order in which subtasks should start, and how many subtasks are in each state."""

    cells: Sequence[State]
    counts: dict[State, int]
    each: int
    """How many subtasks one cell stands for."""


def subtask_map(state: RunState, room: int, *, alive: bool = True) -> SubtaskMap:
    """A map of at most `room` cells. Where no process runs it, nothing is under way."""
    sets = state_sets(state, alive=alive)
    total = len(state.subtasks)
    each = max(1, -(-total // max(1, room)))
    mask = (1 << each) - 1
    present = [(name, sets[name]) for name in STATES if sets[name]]
    cells: list[State] = [
        next((name for name, chosen in present if (chosen >> first) & mask), "gone") for first in range(0, total, each)
    ]
    return SubtaskMap(cells, {name: chosen.bit_count() for name, chosen in present}, each)


def state_sets(state: RunState, *, alive: bool) -> dict[State, Set]:
    """The subtasks in each state. Only those under way are looked at one by one."""
    subtasks = state.subtasks
    sets: dict[State, Set] = dict.fromkeys(STATES, 0)
    gone = subtasks.marked(Mark.GONE)
    underway = subtasks.marked(Mark.UNDERWAY)
    sets["gone"] = gone
    sets["landed"] = subtasks.marked(Mark.CLOSED) & ~gone
    rest = subtasks.open
    if alive:
        for subtask, attempt in state.underway():
            sets[phase(attempt)] |= subtasks.set_of((subtask.id,))
        rest &= ~underway
    sets["asks"] = rest & subtasks.marked(Mark.ASKED)
    sets["failed"] = rest & subtasks.marked(Mark.FAILED) & ~sets["asks"]
    rest &= ~(sets["asks"] | sets["failed"])
    sets["ready"] = rest & (subtasks.startable | underway)
    sets["waiting"] = rest & ~sets["ready"]
    return sets
