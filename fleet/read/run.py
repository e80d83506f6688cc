"""A run at one moment, as every face shows it: what is asked of its state is answered here, once.

A face is given a `RunSnapshot` and renders what it says. It never reads the state itself. What costs time is computed
when it is asked for, and kept for this moment.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from fleet.core.base.ids import QuestionId, RunId, SubtaskId
from fleet.core.base.usage import Spend
from fleet.core.facts.facts import Failure, FailureKind, Relanding
from fleet.core.plans.plan import PLANNER, Plan, Subtask, waves
from fleet.core.policy.requests import (
    Request,
    awaits_approval,
    is_being_revised,
    objections,
    request_problem,
    waiting_for_approval,
)
from fleet.core.state.state import RunState
from fleet.core.state.status import Phase, Progress, Status, phase, progress, split_or_dropped, status_of, statuses
from fleet.core.state.subtasks import Set
from fleet.read.agent_rows import AgentOrder, AgentRow, NodeUseView, agent_rows, node_views, waiting_for_machines
from fleet.read.costs import CostBook, CostView, RemainingView, cost_view, remaining_view
from fleet.read.figures import RunFigures, run_figures
from fleet.read.incident_view import (
    IncidentCounts,
    IncidentRow,
    IncidentView,
    incident_counts,
    incident_rows,
    incident_view,
)
from fleet.read.metric_figures import MetricFigures, metric_figures
from fleet.read.plan_graph import (
    Node,
    PlanVersion,
    Standing,
    State,
    SubtaskMap,
    Waiting,
    WaveParts,
    closed,
    graph_in,
    plan_versions,
    standing,
    state_sets,
    subtask_map,
    waiting_in,
    wave_parts,
)
from fleet.read.plan_views import PlanReview, VersionChangesView, plan_review, version_diffs
from fleet.read.question_view import Needed, QuestionLine, QuestionView, needed, question_line, question_view, when_read
from fleet.read.queue import MergeQueue, ResultBranch, merge_queue, result_branch
from fleet.read.run_view import (
    AttemptLine,
    BaseView,
    PlannerCall,
    RunEnding,
    RunStatus,
    RunView,
    ServiceView,
    StatusView,
    SubtaskLine,
    attempts_underway,
    base_view,
    outages,
    planner_call,
    run_ending,
    run_view,
    run_word,
    status_view,
    subtask_lines,
)
from fleet.read.subtask_view import AttemptView, SubtaskView, attempt_view, subtask_view


@dataclass(frozen=True, eq=False)
class RunSnapshot:
    """A run at one moment."""

    state: RunState
    now: float
    alive: bool
    """Whether a process runs it."""

    @property
    def run(self) -> RunId:
        return self.state.run

    @property
    def started_at(self) -> float:
        return self.state.started_at

    @property
    def last_at(self) -> float:
        """When something last happened."""
        return self.state.last_at

    @cached_property
    def word(self) -> RunStatus:
        """Its status in a word or two."""
        return run_word(self.state, self.now, alive=self.alive)

    @cached_property
    def status(self) -> StatusView:
        return status_view(self.state, self.now, alive=self.alive)

    @cached_property
    def story(self) -> RunView:
        """It with the story of every incident."""
        return run_view(self.state, self.now, alive=self.alive)

    @cached_property
    def figures(self) -> RunFigures:
        return run_figures(self.state, self.now, alive=self.alive)

    @cached_property
    def landed(self) -> Progress:
        """How many subtasks landed, of those that are to land."""
        return progress(self.state)

    @cached_property
    def ending(self) -> RunEnding | None:
        """None while it has not ended."""
        return run_ending(self.state)

    @property
    def refused_for(self) -> Failure | None:
        """If it was refused, the failure for which it was: of its planner, or else of a worker."""
        workers = (subtask.failure for subtask in self.state.subtasks.values() if subtask.failure is not None)
        return self.state.planning.last_failure or next(workers, None)

    @cached_property
    def remaining(self) -> RemainingView | None:
        """What is left of it, if it continues as it did so far; None where that says nothing."""
        return remaining_view(self.state, self.now, alive=self.alive)

    @cached_property
    def base_check(self) -> BaseView:
        """Set-up and gate on the base."""
        return base_view(self.state)

    @property
    def gate_commands(self) -> frozenset[str]:
        """The commands of the gate, now and on the base."""
        on_base = (check.command for check in self.state.base_checks)
        return frozenset((self.state.gate_command or "", *on_base, *self.state.gate)) - {""}

    @property
    def relanding(self) -> Relanding | None:
        """The result that is landed again, if that is what it does."""
        return self.state.relanding

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

    def objections_to(self, id_: SubtaskId) -> tuple[str, ...]:
        """Why the rules do not approve a subtask."""
        return objections(self.state, id_)

    @property
    def asks_about_plan(self) -> bool:
        """Whether a person has to decide now: after the rules have, and not while the planner revises."""
        state = self.state
        if state.engine_since is None or state.ended or state.cancelled or state.draining:
            return False
        return self.awaits_approval and not is_being_revised(state)

    @cached_property
    def review(self) -> PlanReview:
        """What of its plan waits for approval."""
        return plan_review(self.state)

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

    def question_lines(self) -> list[QuestionLine]:
        """The open questions in short."""
        return [question_line(question) for question in self.state.open_questions()]

    def answered_questions(self) -> list[QuestionLine]:
        """The answered questions in short, in the order in which they were asked."""
        return [question_line(each) for each in self.state.questions.values() if each.answer is not None]

    def latest_question(self) -> QuestionLine:
        """The question that was asked last."""
        return question_line(list(self.state.questions.values())[-1])

    def _question(self, id_: QuestionId) -> QuestionView:
        return question_view(self.state, self.state.questions[id_], self.now, alive=self.alive)

    def problem_of(self, request: Request) -> str | None:
        """Why a person's request is not possible now; None if it is."""
        return request_problem(self.state, request)

    # ---- agents, machines and the merge queue

    def agents(self, order: AgentOrder = "busy", *, is_reversed: bool = False) -> Sequence[AgentRow]:
        """The agents at work. A run without a process has none."""
        return agent_rows(self.state, order, is_reversed=is_reversed) if self.alive else ()

    @property
    def planner(self) -> PlannerCall | None:
        """The call of its planner that is under way."""
        return planner_call(self.state)

    @property
    def underway(self) -> Sequence[AttemptLine]:
        """The attempts under way."""
        return tuple(attempts_underway(self.state))

    @cached_property
    def outages(self) -> tuple[ServiceView, ...]:
        """Outages of the model service, whether a process waits or not."""
        return outages(self.state, self.now)

    @property
    def chooses_rungs(self) -> bool:
        """Whether the first rung of a ladder is chosen by what it cost so far."""
        return any(ladder.first is None for ladder in self.state.policy.rungs.values())

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

    def version_changes(self, first: int, last: int) -> tuple[VersionChangesView, ...]:
        """Each version of its plan after `first` up to `last`, with its changes."""
        return tuple(version_diffs(self.state.versions, first, last))

    def graph(self) -> list[Node]:
        """The plan as a graph. It depends on the plan alone."""
        return graph_in(self.state)

    @property
    def has_areas(self) -> bool:
        """Whether planners of areas make parts of the plan."""
        return bool(self.state.areas)

    def wave_parts(self) -> WaveParts:
        """The subtasks in waves: each needs only those of earlier ones. It depends on the plan alone."""
        return wave_parts(self.state)

    def wave_sets(self) -> Sequence[Set]:
        """The subtasks of each wave. It depends on the plan alone."""
        return [self.state.subtasks.set_of(ids) for ids in waves(self.plan)]

    def waiting(self) -> Waiting:
        """What waits for each open subtask. It depends on the plan and on which subtasks are closed."""
        return waiting_in(self.state)

    @cached_property
    def subtasks(self) -> tuple[SubtaskLine, ...]:
        """In plan order."""
        return subtask_lines(self.state, self.now)

    @cached_property
    def statuses(self) -> Mapping[SubtaskId, Status]:
        """The status of every subtask, in plan order."""
        return statuses(self.state, self.now)

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

    def subtask(self, id_: SubtaskId, *, logs: str = "") -> SubtaskView:
        """`logs` precedes the name of each log."""
        return subtask_view(self.state, self.state.spec(id_), self.now, logs=logs)

    def is_over(self, id_: SubtaskId, number: int | None = None) -> bool:
        """Whether no worker says more about a subtask, or in one attempt at it."""
        if self.state.ended:
            return True
        subtask = self.state.subtasks.get(id_)
        if subtask is None:
            return False
        if number is None:
            return subtask.closed
        named = (attempt for attempt in subtask.attempts if attempt.number == number)
        return any(attempt.commit is not None or attempt.ended_at is not None for attempt in named)

    def spec(self, id_: SubtaskId) -> Subtask:
        return self.state.spec(id_)

    def spend_of(self, id_: SubtaskId) -> Spend:
        """What a subtask has cost."""
        return self.state.subtasks[id_].spend

    def title(self, id_: SubtaskId) -> str:
        """The title of a subtask; empty if the plan has none of this name."""
        spec = self.state.specs.get(id_)
        return spec.title if spec is not None else ""

    def finished(self, id_: SubtaskId) -> str | None:
        """The report on verified work that has no file to land, in a sentence; None if it has one."""
        last = self.state.subtasks[id_].last
        if last is None or not (last.worker == PLANNER or last.unchanged):
            return None
        return last.report.summary if last.report is not None else ""

    def latest_failure(self, id_: SubtaskId) -> FailureKind | None:
        """The class of the last failure of a subtask, settled or not."""
        failures = [attempt.failure for attempt in self.state.subtasks[id_].attempts if attempt.failure]
        return failures[-1].kind if failures else None

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


def at_moment(run: RunSnapshot, now: float) -> RunSnapshot:
    """The same run later, with nothing recorded since."""
    return replace(run, now=now)


def just_after(state: RunState) -> RunSnapshot:
    """A run at the moment of its last fact."""
    return RunSnapshot(state, state.last_at, alive=True)
