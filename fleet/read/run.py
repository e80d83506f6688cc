"""A run at one moment, as every face shows it: what is asked of its state is answered here, once.

A face is given a `RunSnapshot` and renders what it says. It never reads the state itself. What costs time is computed
when it is asked for, and kept for this moment.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from fleet.core.base.ids import QuestionId, SubtaskId
from fleet.core.facts.facts import Failure
from fleet.core.plans.plan import Plan
from fleet.core.policy.requests import Request, awaits_approval, request_problem, waiting_for_approval
from fleet.core.state.state import RunState
from fleet.core.state.status import Phase, Status, phase, split_or_dropped, status_of
from fleet.core.state.subtasks import Set
from fleet.read.agent_rows import AgentOrder, AgentRow, agent_rows
from fleet.read.costs import CostBook, CostView, cost_view
from fleet.read.estimate_view import RemainingView, remaining_view
from fleet.read.figures import Ending, RunFigures, run_ending, run_figures
from fleet.read.incident_rows import IncidentRow, incident_rows
from fleet.read.incident_view import IncidentCounts, IncidentView, incident_counts, incident_view
from fleet.read.metric_figures import MetricFigures, metric_figures
from fleet.read.needs import Needed, needed
from fleet.read.nodes_view import NodeUseView, node_views, waiting_for_machines
from fleet.read.plan_graph import (
    Node,
    PlanVersion,
    Standing,
    Waiting,
    closed,
    graph_in,
    plan_versions,
    standing,
    waiting_in,
)
from fleet.read.question_view import QuestionView, question_view, when_read
from fleet.read.queue import MergeQueue, ResultBranch, merge_queue, result_branch
from fleet.read.run_view import RunStatus, StatusView, run_word, status_view
from fleet.read.state_map import State, SubtaskMap, state_sets, subtask_map
from fleet.read.subtask_view import AttemptView, SubtaskView, attempt_view, subtask_view


@dataclass(frozen=True, eq=False)
class RunSnapshot:
    """A run at one moment."""

    state: RunState
    now: float
    alive: bool
    """Whether a process runs it."""

    @property
    def started_at(self) -> float:
        return self.state.started_at

    @cached_property
    def word(self) -> RunStatus:
        """Its status in a word or two."""
        return run_word(self.state, self.now, alive=self.alive)

    @cached_property
    def status(self) -> StatusView:
        return status_view(self.state, self.now, alive=self.alive)

    @cached_property
    def figures(self) -> RunFigures:
        return run_figures(self.state, self.now, alive=self.alive)

    @cached_property
    def ending(self) -> Ending | None:
        """None while it has not ended."""
        return run_ending(self.state)

    @cached_property
    def remaining(self) -> RemainingView | None:
        """What is left of it, if it continues as it did so far; None where that says nothing."""
        return remaining_view(self.state, self.now, alive=self.alive)

    # ---- people

    @cached_property
    def needs(self) -> tuple[Needed, ...]:
        """What it needs from a person, the most urgent first."""
        return needed(self.state, self.now, alive=self.alive)

    @property
    def awaits_approval(self) -> bool:
        """Whether subtasks wait for approval, though the planner may be about to change them."""
        return awaits_approval(self.state)

    @property
    def waiting_for_approval(self) -> tuple[SubtaskId, ...]:
        return waiting_for_approval(self.state)

    @cached_property
    def metrics(self) -> MetricFigures:
        """What metrics show of it."""
        return metric_figures(self.state, self.now, alive=self.alive)

    @cached_property
    def questions(self) -> Mapping[QuestionId, QuestionView]:
        """The open questions."""
        return {each.id: self._question(each.id) for each in self.state.open_questions()}

    def question_about(self, id_: SubtaskId) -> QuestionView | None:
        """The open question about a subtask, if there is one."""
        subtask = self.state.subtasks.get(id_)
        return self._question(subtask.question) if subtask is not None and subtask.question is not None else None

    def _question(self, id_: QuestionId) -> QuestionView:
        return question_view(self.state, self.state.questions[id_], self.now, alive=self.alive)

    def problem_of(self, request: Request) -> str | None:
        """Why a person's request is not possible now; None if it is."""
        return request_problem(self.state, request)

    # ---- agents, machines and the merge queue

    def agents(self, order: AgentOrder = "busy", *, is_reversed: bool = False) -> Sequence[AgentRow]:
        """The agents at work. A run without a process has none."""
        return agent_rows(self.state, order, is_reversed=is_reversed) if self.alive else ()

    @cached_property
    def nodes(self) -> Sequence[NodeUseView]:
        """The machines beside this one."""
        return node_views(self.state, alive=self.alive)

    @cached_property
    def waiting_for_machines(self) -> Mapping[SubtaskId, str]:
        """The first of the subtasks that could start, but for a machine; and why."""
        return waiting_for_machines(self.state, self.now)

    @cached_property
    def queue(self) -> MergeQueue:
        return merge_queue(self.state)

    @cached_property
    def result(self) -> ResultBranch:
        return result_branch(self.state)

    # ---- the plan

    @property
    def plan(self) -> Plan:
        return self.state.plan

    @property
    def closed(self) -> Set:
        """The closed subtasks: the same value as long as no other one was closed."""
        return closed(self.state)

    @property
    def versions_key(self) -> object:
        """The same value as long as the plan has no new version."""
        return self.state.versions

    def versions(self) -> tuple[PlanVersion, ...]:
        """The versions of the plan, the first one first."""
        return plan_versions(self.state)

    def graph(self) -> list[Node]:
        """The plan as a graph. It depends on the plan alone."""
        return graph_in(self.state)

    def waiting(self) -> Waiting:
        """What waits for each open subtask. It depends on the plan and on which subtasks are closed."""
        return waiting_in(self.state)

    def status_of(self, id_: SubtaskId) -> Status:
        return status_of(self.state, id_, self.now)

    def standing(self, id_: SubtaskId) -> Standing:
        """How it stands with a subtask of the plan."""
        return standing(self.state, id_, self.now)

    @cached_property
    def state_sets(self) -> Mapping[State, Set]:
        """The subtasks in each state of the map."""
        return state_sets(self.state, alive=self.alive)

    def subtask_map(self, room: int) -> SubtaskMap:
        """A map of its subtasks in at most `room` cells."""
        return subtask_map(self.state, room, alive=self.alive)

    # ---- one subtask

    @property
    def planner_calls(self) -> int:
        return self.state.planning.calls

    @property
    def split_or_dropped(self) -> frozenset[SubtaskId]:
        return split_or_dropped(self.state)

    def subtask_ids(self) -> tuple[SubtaskId, ...]:
        """All that were ever planned."""
        return tuple(self.state.subtasks)

    def when_read(self, id_: SubtaskId, *, interrupt: bool = False) -> str:
        """Which attempt will read an instruction that is given now, and when; for a person."""
        return when_read(self.state, id_, interrupt=interrupt)

    def has_subtask(self, id_: str) -> bool:
        return id_ in self.state.subtasks

    def subtask(self, id_: SubtaskId) -> SubtaskView:
        return subtask_view(self.state, self.state.spec(id_), self.now)

    def failure_of(self, id_: SubtaskId) -> Failure | None:
        """The last failure of a subtask, until a new attempt or a decision settles it."""
        subtask = self.state.subtasks.get(id_)
        return subtask.failure if subtask is not None else None

    def attempts_at(self, id_: SubtaskId) -> int:
        """How many attempts there were at a subtask."""
        return len(self.state.subtasks[id_].attempts)

    def attempt(self, id_: SubtaskId, number: int) -> AttemptView:
        """An attempt at a subtask, counted from 1."""
        return attempt_view(self.state.subtasks[id_].attempts[number - 1], self.now)

    def phase_of(self, id_: SubtaskId, number: int) -> Phase:
        """What an attempt under way is doing."""
        return phase(self.state.subtasks[id_].attempts[number - 1])

    # ---- incidents and costs

    def incidents(self) -> Sequence[IncidentRow]:
        """Open ones first, and then the latest."""
        return incident_rows(self.state)

    def incident_counts(self) -> IncidentCounts:
        """Each rate of recovery with its denominator."""
        return incident_counts(self.state.incidents)

    def incident(self, number: int) -> IncidentView:
        found = next(each for each in self.state.incidents if each.number == number)
        return incident_view(self.state, found, self.now)

    def costs(self, book: CostBook, *, most: int) -> CostView:
        """Its costs, with a book that is kept from one moment to the next; at most so many subtasks are named."""
        return cost_view(self.state, self.now, book, alive=self.alive, most=most)
