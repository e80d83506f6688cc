"""A run at a moment: all values that UIs show of its state.

A UI renders a `RunSnapshot` and never reads the state itself. Expensive values are computed on first use and cached.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from fleet.core.base.ids import QuestionId, RunId, Sha, SubtaskId
from fleet.core.base.usage import Cost, Spend
from fleet.core.facts.fact_parts import IssueSource, SubtaskEstimate
from fleet.core.facts.facts import Failure, FailureKind, Relanding, Role
from fleet.core.plans.parameters import is_flat
from fleet.core.plans.plan import PLANNER, Plan, Subtask, waves
from fleet.core.policy.budget import Budget, run_budgets
from fleet.core.policy.landing import is_full
from fleet.core.policy.planner_view import ROUNDED
from fleet.core.policy.requests import (
    Request,
    awaits_approval,
    is_being_revised,
    objections,
    open_for_approval,
    request_problem,
    unapproved,
    waiting_for_approval,
)
from fleet.core.state.state import RunState
from fleet.core.state.status import (
    Phase,
    Progress,
    Status,
    agent_phases,
    is_refused,
    phase,
    progress,
    split_or_dropped,
    status_counts,
    status_of,
    statuses,
)
from fleet.core.state.subtasks import Mark, Set
from fleet.read.agent_rows import (
    AgentOrder,
    AgentRow,
    NodeStatus,
    NodeUseView,
    agent_rows,
    node_status,
    node_views,
    waiting_for_machines,
)
from fleet.read.costs import AttemptCosts, attempt_costs, remaining_view, run_estimates
from fleet.read.figures import Face, Figure, RunFigures, Value, figure_values, figures_of, run_figures
from fleet.read.incident_view import (
    IncidentCounts,
    IncidentRow,
    IncidentView,
    incident_counts,
    incident_view,
    incident_views,
)
from fleet.read.plan_graph import (
    PlanVersion,
    Standing,
    State,
    SubtaskMap,
    TreeNode,
    Waiting,
    WaveParts,
    graph,
    plan_versions,
    state_sets,
    subtask_map,
    waiting,
    wave_parts,
)
from fleet.read.plan_views import PlanReview, VersionChangesView, plan_review, version_diffs
from fleet.read.question_view import (
    Needed,
    QuestionLine,
    QuestionView,
    ends_in,
    kinds_of,
    needed,
    question_view,
    reviews_view,
    when_read,
)
from fleet.read.queue import MergeQueue, ResultBranchView, merge_queue, result_branch
from fleet.read.run_view import (
    AgentsView,
    BaseView,
    BudgetView,
    LandingView,
    PlannerHealth,
    RemainingView,
    RunEnding,
    RunStatus,
    RunView,
    ServiceView,
    StatusView,
    SubtaskLine,
    base_view,
    commits_tested,
    outages,
    run_word,
    subtask_lines,
    tokens_view,
)
from fleet.read.subtask_view import AttemptView, SubtaskView, attempt_view, subtask_view

MOVING: frozenset[RunStatus] = frozenset({"planning", "running", "draining"})


@dataclass(frozen=True, eq=False)
class RunSnapshot:
    """A run at a moment."""

    state: RunState
    now: float
    alive: bool
    """Whether a process is running it."""

    @property
    def run(self) -> RunId:
        return self.state.run

    @property
    def started_at(self) -> float:
        return self.state.started_at

    @property
    def last_at(self) -> float:
        """The time of the last fact."""
        return self.state.last_at

    @cached_property
    def word(self) -> RunStatus:
        """The status of the run."""
        return run_word(self.state, self.now, alive=self.alive)

    @cached_property
    def status(self) -> StatusView:
        return _status(self)

    @cached_property
    def story(self) -> RunView:
        """The run with all its incidents."""
        status, state = self.status, self.state
        return RunView(
            run=status.run,
            state=status.state,
            why=status.why,
            goal=status.goal,
            simulated=status.simulated,
            rehearsal=status.rehearsal,
            for_real=status.for_real,
            subtasks=status.subtasks,
            rates=status.incidents,
            incidents=incident_views(state, self.now),
            base_check=self.base_check,
        )

    @cached_property
    def figures(self) -> RunFigures:
        return run_figures(self.state, self.now, alive=self.alive)

    @cached_property
    def landed(self) -> Progress:
        """Number of landed subtasks, of those planned to land."""
        return progress(self.state)

    @cached_property
    def ending(self) -> RunEnding | None:
        """None for a run that has not ended."""
        state = self.state
        if state.ending is None:
            return None
        refusal = self.base_check if is_refused(state) else None
        word = "refused" if refusal is not None else state.ending
        at = state.ended_at or state.last_at
        return RunEnding(state.ending, word, state.ending_why, at, state.ending == "landed", refusal)

    @property
    def refused_for(self) -> Failure | None:
        """For a refused run, the failure of its planner, or else of a worker."""
        workers = (subtask.failure for subtask in self.state.subtasks.values() if subtask.failure is not None)
        return self.state.planning.last_failure or next(workers, None)

    @cached_property
    def remaining(self) -> RemainingView | None:
        """The remaining work, extrapolated from the progress so far. None without enough data."""
        return remaining_view(self.state, self.now, alive=self.alive)

    @cached_property
    def base_check(self) -> BaseView:
        """The setup command and the gate on the base."""
        return base_view(self.state)

    @property
    def gate_commands(self) -> frozenset[str]:
        """The commands of the gate, now and on the base."""
        on_base = (check.command for check in self.state.base_checks)
        return frozenset((self.state.gate_command or "", *on_base, *self.state.gate)) - {""}

    @property
    def base(self) -> Sha:
        """The commit that the run started from."""
        return self.state.base

    @property
    def base_name(self) -> str:
        return self.state.base_name

    @property
    def issue(self) -> IssueSource | None:
        """The issue that the run works on."""
        return self.state.issue

    @property
    def relanding(self) -> Relanding | None:
        """The result that the run lands again, for a relanding."""
        return self.state.relanding

    @property
    def low_budget(self) -> str:
        """The budget that is nearly used up. Empty if there is none."""
        return self.state.low

    @property
    def engine(self) -> int | None:
        """The number of the engine that started and has not stopped. None without an engine."""
        return self.state.epoch if self.state.engine_since is not None else None

    # ---- people

    @cached_property
    def needs(self) -> tuple[Needed, ...]:
        """The pending requests to a person, most urgent first."""
        return needed(self.state, self.now, alive=self.alive)

    @property
    def awaits_approval(self) -> bool:
        """Whether subtasks wait for approval, even if the planner is about to change them."""
        return awaits_approval(self.state)

    @property
    def waiting_for_approval(self) -> tuple[SubtaskId, ...]:
        return waiting_for_approval(self.state)

    def objections_to(self, id_: SubtaskId) -> tuple[str, ...]:
        """The rules that a subtask breaks."""
        return objections(self.state, id_)

    @property
    def asks_about_plan(self) -> bool:
        """Whether a person has to decide now: after the rules, and not during a revision."""
        return self.may_ask and self.plan_waits

    @property
    def may_ask(self) -> bool:
        """Whether fleet may ask a person: an engine is running, and it is not about to stop."""
        state = self.state
        return not (state.engine_since is None or state.ended or state.cancelled or state.draining)

    @property
    def plan_waits(self) -> bool:
        """Whether subtasks wait for approval, and the planner is not about to change them."""
        return self.awaits_approval and not is_being_revised(self.state)

    @cached_property
    def review(self) -> PlanReview:
        """The part of the plan that waits for approval."""
        return plan_review(self.state)

    @property
    def seen_at(self) -> float:
        """The current time or, without a process, the time of the last fact."""
        return self.now if self.alive else self.last_at

    @property
    def moves(self) -> bool:
        """Whether an engine is running it, and it is not waiting for a person."""
        return self.word in MOVING and not (self.needs and not any(self.state.underway()))

    @property
    def is_planning(self) -> bool:
        """Whether a planner call is running."""
        return self.state.planning.open is not None

    def phases(self) -> Mapping[Phase, int]:
        """Number of agents by phase. Empty without a process."""
        return Counter(agent_phases(self.state)) if self.alive else {}

    def shown(self, face: Face) -> list[tuple[Figure, Value]]:
        """The figures for a UI."""
        return [(figure, value) for figure in figures_of(face) if (value := figure.value(self)) is not None]

    @cached_property
    def questions(self) -> Mapping[QuestionId, QuestionView]:
        """The open questions."""
        return {each.id: self._question(each.id) for each in self.state.open_questions()}

    def question_about(self, id_: SubtaskId) -> QuestionView | None:
        """The open question about a subtask, if any."""
        subtask = self.state.subtasks.get(id_)
        return self._question(subtask.question) if subtask is not None and subtask.question is not None else None

    def question_named(self, name: str) -> QuestionId:
        """The id of a question, regardless of case. The name itself if there is none."""
        known = (id_ for id_ in self.state.questions if id_.lower() == name.lower())
        return next(known, QuestionId(name))

    def question_lines(self) -> list[QuestionLine]:
        """The open questions, without details."""
        return list(self.state.open_questions())

    def answered_questions(self) -> list[QuestionLine]:
        """The answered questions, without details, in order."""
        return [each for each in self.state.questions.values() if each.answer is not None]

    def latest_question(self) -> QuestionLine:
        """The latest question."""
        return list(self.state.questions.values())[-1]

    def _question(self, id_: QuestionId) -> QuestionView:
        return question_view(self.state, self.state.questions[id_], self.now, alive=self.alive)

    def problem_of(self, request: Request) -> str | None:
        """Why a request is not valid now. None if it is valid."""
        return request_problem(self.state, request)

    # ---- agents, machines and the merge queue

    def agents(self, order: AgentOrder = "busy", *, is_reversed: bool = False) -> Sequence[AgentRow]:
        """The running agents. Empty without a process."""
        return agent_rows(self.state, order, is_reversed=is_reversed) if self.alive else ()

    @cached_property
    def outages(self) -> tuple[ServiceView, ...]:
        """The outages of the model service, even without a process."""
        return outages(self.state, self.now)

    @property
    def chooses_rungs(self) -> bool:
        """Whether starting rungs are chosen from past results and cost."""
        return any(ladder.first is None for ladder in self.state.policy.rungs.values())

    @cached_property
    def nodes(self) -> tuple[NodeUseView, ...]:
        """The nodes of the run."""
        return node_views(self.state, alive=self.alive) if self.state.nodes else ()

    @property
    def node_statuses(self) -> Mapping[str, NodeStatus]:
        """The statuses of all nodes that the run ever had."""
        return {name: node_status(self.state.nodes, node) for name, node in self.state.nodes.items()}

    def is_connected(self, node: str) -> bool:
        """Whether a node is connected, drained or not."""
        return not self.state.nodes[node].out

    @cached_property
    def waiting_for_machines(self) -> Mapping[SubtaskId, str]:
        """The first ready subtasks that wait for a machine, with the reason."""
        state = self.state
        may_wait = state.policy.machines.workers or state.subtasks.plan.labelled
        return waiting_for_machines(state, self.now) if may_wait else {}

    @cached_property
    def queue(self) -> MergeQueue:
        return merge_queue(self.state)

    @cached_property
    def result(self) -> ResultBranchView:
        return result_branch(self.state)

    # ---- the plan

    @property
    def plan(self) -> Plan:
        return self.state.plan

    @property
    def closed(self) -> Set:
        """The closed subtasks. The value is identical until another one is closed."""
        return self.state.subtasks.marked(Mark.CLOSED)

    @property
    def versions_key(self) -> object:
        """A value that is identical until the plan has a new version."""
        return self.state.versions

    def versions(self) -> tuple[PlanVersion, ...]:
        """The versions of the plan, in order."""
        return plan_versions(self.state)

    def version_changes(self, first: int, last: int) -> tuple[VersionChangesView, ...]:
        """The versions of the plan after `first` up to `last`, with their changes."""
        return tuple(version_diffs(self.state.versions, first, last))

    def graph(self) -> list[TreeNode]:
        """The plan as a graph. Splits and areas only change with the version of the plan."""
        parents: dict[str, str | None] = {
            id_: subtask.parent or subtask.area for id_, subtask in self.state.subtasks.items()
        }
        return graph(self.plan, parents)

    @property
    def has_areas(self) -> bool:
        """Whether the plan has areas."""
        return bool(self.state.areas)

    def wave_parts(self) -> WaveParts:
        """The subtasks in waves: each depends only on earlier waves. Only changes with the plan."""
        return wave_parts(self.state)

    def wave_sets(self) -> Sequence[Set]:
        """The subtasks of each wave. Only changes with the plan."""
        return [self.state.subtasks.set_of(ids) for ids in waves(self.plan)]

    def waiting(self) -> Waiting:
        """The dependents of each open subtask. Only changes with the plan and the closed subtasks."""
        subtasks = self.state.subtasks
        open_, bits = subtasks.all & ~self.closed, subtasks.plan.bits
        return waiting(self.plan, {id_ for id_ in self.plan.ids if open_ >> bits[id_] & 1})

    @cached_property
    def subtasks(self) -> tuple[SubtaskLine, ...]:
        """The subtasks, in plan order."""
        return subtask_lines(self.state, self.now)

    def subtask_counts(self) -> Mapping[Status, int]:
        """Number of subtasks by status."""
        return status_counts(self.state, self.now)

    @cached_property
    def statuses(self) -> Mapping[SubtaskId, Status]:
        """The status of every subtask, in plan order."""
        return statuses(self.state, self.now)

    def status_of(self, id_: SubtaskId) -> Status:
        return status_of(self.state, id_, self.now)

    def standing(self, id_: SubtaskId) -> Standing:
        """The standing of a subtask in the plan."""
        subtask = self.state.subtasks[id_]
        waits = bool(unapproved(self.state) >> self.state.subtasks.plan.bits[id_] & 1)
        return Standing(self.status_of(id_), waits, len(subtask.attempts), subtask.landed)

    @cached_property
    def state_sets(self) -> Mapping[State, Set]:
        """The subtasks by state of the map."""
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
        """All subtasks that were ever planned."""
        return tuple(self.state.subtasks)

    def when_read(self, id_: SubtaskId, *, interrupt: bool = False) -> str:
        """Describe which attempt will read a new instruction, and when."""
        return when_read(self.state, id_, interrupt=interrupt)

    def has_subtask(self, id_: str) -> bool:
        return id_ in self.state.subtasks

    def subtask(self, id_: SubtaskId, *, logs: str = "") -> SubtaskView:
        """The view of a subtask. `logs` is the path prefix for logs."""
        return subtask_view(self.state, self.state.spec(id_), self.now, logs=logs)

    def is_over(self, id_: SubtaskId, number: int | None = None) -> bool:
        """Whether the workers of a subtask, or of an attempt, have finished."""
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

    def area_of(self, id_: SubtaskId) -> SubtaskId | None:
        """The area of the planner that created a subtask. None for the run's planner."""
        return self.state.subtasks[id_].area

    def spend_of(self, id_: SubtaskId) -> Spend:
        """The cost of a subtask."""
        return self.state.subtasks[id_].spend

    def title(self, id_: SubtaskId) -> str:
        """The title of a subtask. Empty if it is not in the plan."""
        spec = self.state.specs.get(id_)
        return spec.title if spec is not None else ""

    def finished(self, id_: SubtaskId) -> str | None:
        """The summary of verified work without files to land. None for other work."""
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
        """Number of attempts at a subtask."""
        return len(self.state.subtasks[id_].attempts)

    def attempt(self, id_: SubtaskId, number: int) -> AttemptView:
        """An attempt at a subtask, counted from 1."""
        return attempt_view(self.state.subtasks[id_].attempts[number - 1], self.now)

    def phase_of(self, id_: SubtaskId, number: int) -> Phase:
        """The phase of a running attempt."""
        return phase(self.state.subtasks[id_].attempts[number - 1])

    # ---- incidents and costs

    def incidents(self) -> Sequence[IncidentRow]:
        """The incidents: open ones first, then the latest."""
        return sorted(self.state.incidents, key=lambda each: (each.closed_at is not None, -each.opened_at))

    def incident_counts(self) -> IncidentCounts:
        """The counts of incidents, with recovery rates."""
        return incident_counts(self.state.incidents)

    def incident(self, number: int) -> IncidentView:
        found = next(each for each in self.state.incidents if each.number == number)
        return incident_view(self.state, found, self.now)

    @property
    def costs_key(self) -> object:
        """A value that is identical until the cost of an attempt increases."""
        return self.state.subtasks

    def attempt_costs(self, most: int) -> AttemptCosts:
        """The cost of all attempts. `most` limits the list of expensive subtasks."""
        return attempt_costs(self.state, most)

    @property
    def spends(self) -> Mapping[Role, Spend]:
        """The cost by role."""
        return {"planner": Spend(), "worker": Spend(), **self.state.spend}

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """The configured budgets, with the used amounts."""
        return tuple(run_budgets(self.state, self.now))

    @property
    def in_doubt(self) -> Cost:
        """Upper bound of the additional cost of interrupted calls."""
        return self.state.doubt

    @property
    def estimates(self) -> tuple[SubtaskEstimate, ...]:
        """Estimates for the open subtasks, from comparable landed ones."""
        return run_estimates(self.state)


def at_moment(run: RunSnapshot, now: float) -> RunSnapshot:
    """The same run at a later time, without new facts."""
    return replace(run, now=now)


def just_after(state: RunState) -> RunSnapshot:
    """A run at the time of its last fact."""
    return RunSnapshot(state, state.last_at, alive=True)


def status_view(state: RunState, now: float, *, alive: bool) -> StatusView:
    return RunSnapshot(state, now, alive).status


def _status(run: RunSnapshot) -> StatusView:
    state, now, alive = run.state, run.now, run.alive
    spending, base = run.spends, run.base_check
    return StatusView(
        run=state.run,
        state=run.word,
        why=state.ending_why,
        paused_by=state.paused_by,
        causes=base.causes,
        advice=base.advice,
        goal=state.plan.goal or state.goal,
        repository=state.repository,
        started_at=state.started_at,
        plan_version=state.plan.version,
        subtasks=dict(sorted(run.subtask_counts().items())),
        landed=run.landed,
        agents=AgentsView(running=state.working() if alive else 0, peak=state.peak, limit=state.policy.workers),
        figures=figure_values("json", run),
        commits=state.commits,
        commits_tested=commits_tested(state),
        landing=_landing_view(state),
        incidents=run.incident_counts(),
        tokens={role: tokens_view(spend) for role, spend in spending.items()},
        cost_dollars=state.spent.dollars,
        cost_by_role={role: spend.dollars for role, spend in spending.items()},
        cost_in_doubt=run.in_doubt,
        budget={
            budget.unit: BudgetView(limit=budget.limit, left=round(budget.remaining, ROUNDED[budget.unit]))
            for budget in run.budgets
        },
        simulated=state.simulated,
        rehearsal=state.rehearsal is not None,
        for_real=state.for_real,
        sandbox=state.sandbox,
        seconds=round(state.seconds(now), 3),
        service=run.outages if alive else (),
        questions=tuple(run.questions.values()),
        needs=kinds_of(run.needs),
        ends_in_s=ends_in(state, now) if alive else None,
        result_branch=state.result_branch if state.published else None,
        base=state.base,
        tip=state.tip,
        gate=state.gate_command,
        never_passed=tuple(check.command for check in state.red_base),
        warnings=tuple(state.warnings),
        flat=is_flat(state.versions[0].plan) if state.versions else None,
        plan_warnings=tuple(state.plan_warnings),
        plan_values=dict(state.values),
        waiting_for_approval={id_: tuple(objections(state, id_)) for id_ in open_for_approval(state)},
        reviews=state.reviews,
        change_reviews=reviews_view(state),
        nodes=run.nodes,
        waiting_for_machines=run.waiting_for_machines,
        planner=_planner_health(state, now),
        estimates=run.estimates,
        remaining=run.remaining,
    )


def _landing_view(state: RunState) -> LandingView:
    return LandingView(
        batches=state.landing.batches,
        red=state.landing.red,
        gate_runs=sum(tried.gate_runs for tried in state.landing.tested),
        queued=len(state.landing.queue),
        testing=len(state.landing.open_batches),
        full=is_full(state),
    )


def _planner_health(state: RunState, now: float) -> PlannerHealth:
    planning = state.planning
    failing = planning.last_failure
    return PlannerHealth(
        calls=planning.calls,
        failures_in_a_row=planning.failures,
        last_failure=failing.summary if failing is not None else None,
        next_try_s=round(max(0.0, planning.not_before - now), 1) if failing is not None else None,
    )
