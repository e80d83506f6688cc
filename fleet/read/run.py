"""A run at one moment, as every face shows it: what is asked of its state is answered here, once.

A face is given a `RunSnapshot` and renders what it says. It never reads the state itself. What costs time is computed
when it is asked for, and kept for this moment.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from fleet.core.base.ids import QuestionId
from fleet.core.state.state import RunState
from fleet.core.state.subtasks import Set
from fleet.read.metric_figures import MetricFigures, metric_figures
from fleet.read.needs import Needed, needed
from fleet.read.question_view import QuestionView, question_view
from fleet.read.run_view import RunStatus, StatusView, run_word, status_view
from fleet.read.state_map import State, SubtaskMap, state_sets, subtask_map


@dataclass(frozen=True, eq=False)
class RunSnapshot:
    """A run at one moment."""

    state: RunState
    now: float
    alive: bool
    """Whether a process runs it."""

    @cached_property
    def word(self) -> RunStatus:
        """Its status in a word or two."""
        return run_word(self.state, self.now, alive=self.alive)

    @cached_property
    def status(self) -> StatusView:
        return status_view(self.state, self.now, alive=self.alive)

    @cached_property
    def needs(self) -> tuple[Needed, ...]:
        """What it needs from a person, the most urgent first."""
        return needed(self.state, self.now, alive=self.alive)

    @cached_property
    def metrics(self) -> MetricFigures:
        """What metrics show of it."""
        return metric_figures(self.state, self.now, alive=self.alive)

    @cached_property
    def questions(self) -> Mapping[QuestionId, QuestionView]:
        """The open questions."""
        return {
            each.id: question_view(self.state, each, self.now, alive=self.alive) for each in self.state.open_questions()
        }

    @cached_property
    def state_sets(self) -> Mapping[State, Set]:
        """The subtasks in each state of the map."""
        return state_sets(self.state, alive=self.alive)

    def subtask_map(self, room: int) -> SubtaskMap:
        """A map of its subtasks in at most `room` cells."""
        return subtask_map(self.state, room, alive=self.alive)
