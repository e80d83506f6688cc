"""The status of a run, and its incidents."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fleet.core.base.ids import RunId, Sha, SubtaskId
from fleet.core.base.output import advice, key_lines
from fleet.core.base.usage import Cost, Spend
from fleet.core.facts.facts import CheckRun, Ending, Failure, Role, ServiceCondition, SetupRun, SubtaskEstimate
from fleet.core.plans.plan import Subtask
from fleet.core.policy.budget import outage_text, over_budget, run_budgets
from fleet.core.policy.endings import is_idle, planner_is_lost
from fleet.core.policy.planner_view import ROUNDED
from fleet.core.policy.requests import awaits_approval
from fleet.core.state.state import Outage, Review, RunState
from fleet.core.state.status import Phase, Progress, Status, is_refused, statuses
from fleet.core.state.subtasks import SubtaskState
from fleet.read.agent_rows import NodeUseView
from fleet.read.figures import FigureValues
from fleet.read.incident_view import IncidentCounts, IncidentView
from fleet.read.question_view import (
    NeedKind,
    QuestionView,
    ReviewsView,
)

SubtaskStatus = Status
"""The status of a subtask."""
AttemptPhase = Phase
"""The phase of a running attempt."""
RunStatus = Literal[
    "planning",
    "running",
    "paused",
    "draining",
    "awaiting approval",
    "waiting for an answer",
    "waiting for the planner",
    "over budget",
    "interrupted",  # no process is running it
    "refused",  # it ended before any work was done
    Ending,
]
"""The status of a run."""


@dataclass(frozen=True, slots=True)
class AgentsView:
    """The number of agents at the same time."""

    running: int
    """Current number. 0 if no engine is running."""
    peak: int
    """Peak number so far."""
    limit: int
    """Maximum number."""


@dataclass(frozen=True, slots=True)
class LandingView:
    """The batches so far."""

    batches: int
    """Batches formed."""
    red: int
    """Batches with a failed check."""
    gate_runs: int
    """Number of gate runs."""
    queued: int
    """Verified subtasks waiting to land, including those under test."""
    testing: int
    """Batches under test."""
    full: bool
    """Whether new attempts wait because too much work is waiting for checks or for landing."""


@dataclass(frozen=True, slots=True)
class TokensView:
    """Calls and their tokens."""

    calls: int
    """Number of model calls."""
    input: int
    """Input tokens that were neither read from the cache nor written to it."""
    output: int
    """Output tokens."""
    cache_read: int
    """Input tokens read from the cache."""
    cache_write: int
    """Input tokens written to the cache."""


@dataclass(frozen=True, slots=True)
class BudgetView:
    """One limit of a run."""

    limit: float
    """Value of the limit."""
    left: float
    """Remaining amount."""


@dataclass(frozen=True, slots=True)
class ServiceView:
    """An outage of the model service that calls are waiting for."""

    family: str | None
    """The affected model family. Null for all families."""
    condition: ServiceCondition
    """`down`, `limited` or `refused`."""
    why: str
    """Cause of the condition, from the last failed call."""
    since: float
    """When it started, in seconds since 1970."""
    seconds: float
    """Duration of the outage so far."""
    message: str
    """The outage as a sentence."""


@dataclass(frozen=True, slots=True)
class SubtaskLine:
    """A summary of a subtask."""

    id: SubtaskId
    title: str
    status: Status
    attempts: int
    parts: tuple[SubtaskId, ...]
    """The parts it was split into."""
    landed: Sha | None
    """The landed commit. Null if it did not land."""
    unchanged: bool
    """Whether it is done without changing a file."""


@dataclass(frozen=True, slots=True)
class PlannerHealth:
    """The planner calls of a run, and the next retry after a failure."""

    calls: int
    """Number of calls of the run's planner."""
    failures_in_a_row: int
    """Number of failed calls since the last successful one."""
    last_failure: str | None
    """Why its last call failed. Null if it succeeded."""
    next_try_s: float | None
    """Seconds until the next try."""


@dataclass(frozen=True, slots=True)
class BaseView:
    """The results of the setup command and the gate on the base of a run."""

    setup: SetupRun | None
    """The last run of the setup command. Null if it did not run."""
    gate: tuple[CheckRun, ...]
    """The gate on the base. Empty without a gate, or if it could not run."""
    failure: Failure | None
    """Why the gate could not run."""
    causes: tuple[str, ...]
    """After a failure: the relevant lines of the output."""
    advice: tuple[str, ...]
    """Suggested fixes."""


@dataclass(frozen=True, slots=True)
class RunEnding:
    """How a run ended."""

    ending: Ending
    word: str
    """The same, or `refused` if it ended before any work was done."""
    why: str
    at: float
    is_good: bool
    """Whether everything landed."""
    refusal: BaseView | None
    """For a refused run: the results on the base."""


@dataclass(frozen=True, slots=True)
class RemainingView:
    """The remaining work of a run, extrapolated from its progress so far."""

    landed: int
    """Landed subtasks."""
    subtasks: int
    """Subtasks planned to land."""
    seconds: float
    """Active time until everything has landed."""
    dollars: float | None
    """Projected total cost of the run in USD. Null if the price of a call is unknown."""


@dataclass(frozen=True, slots=True)
class StatusView:
    """The status of a run."""

    run: RunId
    """Name of the run."""
    state: RunStatus
    """`planning`, `running`, `paused`, `draining`, `awaiting approval`, `waiting for an answer`,
    `waiting for the planner`, `over budget`, `interrupted`, `refused` (it ended before any work was done), or its
    ending."""
    why: str
    """Why it ended. Empty before that."""
    paused_by: str | None
    """The person who paused it, or `run.not_between` for the configured hours. Null if it is not paused."""
    causes: tuple[str, ...]
    """The relevant lines of output if the setup command or the gate failed on the base."""
    advice: tuple[str, ...]
    """Suggested fixes."""
    goal: str
    """Goal of the run."""
    repository: str
    """Path of the repository."""
    started_at: float
    """When it started, in seconds since 1970."""
    plan_version: int
    """Current version of the plan. 0 before the first plan."""
    subtasks: Mapping[Status, int]
    """Number of subtasks by status."""
    landed: Progress
    """Number of landed subtasks, of those planned to land."""
    agents: AgentsView
    """Number of concurrent agents."""
    figures: FigureValues
    """Further figures, each as a separate key: see `fleet/read/figures.py`."""
    commits: int
    """Landed commits."""
    commits_tested: int
    """Landed commits whose own tree was tested."""
    landing: LandingView
    """State of the merge queue."""
    incidents: IncidentCounts
    """Numbers of incidents."""
    tokens: Mapping[Role, TokensView]
    """By role: `planner`, `worker`, and `sub_planner`, `resolver` and `reviewer` if there were any."""
    cost_dollars: float | None
    """Cost in USD. Null if the price of a call is unknown."""
    cost_by_role: Mapping[Role, float | None]
    """Dollars by role. Null if the price of a call is unknown."""
    cost_in_doubt: Cost
    """Upper bound of the additional cost of interrupted calls."""
    budget: Mapping[str, BudgetView]
    """The configured limits by unit: `dollars`, `tokens`, `minutes`, `attempts`."""
    simulated: bool
    """Whether the model is simulated."""
    rehearsal: bool
    """Whether it is a rehearsal. Its figures are not those of a real run."""
    for_real: bool
    """Whether it is a rehearsal for real, in which planner and workers redo past commits."""
    sandbox: str
    """Sandbox that commands run in."""
    seconds: float
    """Active time."""
    service: tuple[ServiceView, ...]
    """Outages of the model service that calls are waiting for."""
    questions: tuple[QuestionView, ...]
    """Open questions."""
    needs: tuple[NeedKind, ...]
    """Pending requests to a person, most urgent first: `resume`, `approve`, `answer`, `budget`, `unpause`."""
    ends_in_s: float | None
    """Seconds until the run ends without an answer or an approval. Null while it has other work, or without a limit."""
    result_branch: str | None
    """Null until a commit is published."""
    base: Sha
    """Commit that the run is based on."""
    tip: Sha
    """Tip of the integration branch."""
    gate: str | None
    """The project's gate. Empty without a gate, and null if it was not recorded."""
    never_passed: tuple[str, ...]
    """Gate commands that failed on the base and on every later tree."""
    warnings: tuple[str, ...]
    """Warnings about the run."""
    flat: bool | None
    """Whether the first plan has a single subtask. Null without a plan."""
    plan_warnings: tuple[str, ...]
    """The linter's warnings about the plan."""
    plan_values: Mapping[str, object]
    """The parameter values of the plan file."""
    waiting_for_approval: Mapping[SubtaskId, tuple[str, ...]]
    """The subtasks that wait for approval, with the rules that they break."""
    reviews: tuple[Review, ...]
    """Approvals and rejections of the plan, in order."""
    change_reviews: ReviewsView | None
    """Reviews of changes by other models. Null without reviews."""
    nodes: tuple[NodeUseView, ...]
    """The nodes of the run, by name."""
    waiting_for_machines: Mapping[SubtaskId, str]
    """Ready subtasks that wait for a machine with matching labels, with the reason. Only the first ones."""
    planner: PlannerHealth
    """Health of the run's planner."""
    estimates: tuple[SubtaskEstimate, ...]
    """Cost and duration of comparable landed subtasks, for each worker and size among the open subtasks."""
    remaining: RemainingView | None
    """The remaining work, extrapolated from its progress so far. Null if fewer than five subtasks have landed, the run
    waits for a person, no process is running it, or it has ended."""


@dataclass(frozen=True, slots=True)
class RunView:
    """A run with all its incidents."""

    run: RunId
    """Name of the run."""
    state: RunStatus
    """The same as in the status."""
    why: str
    """Why it ended. Empty before that."""
    goal: str
    """Goal of the run."""
    simulated: bool
    """Whether the model is simulated."""
    rehearsal: bool
    """Whether it is a rehearsal."""
    for_real: bool
    """Whether it is a rehearsal for real, in which planner and workers redo past commits."""
    subtasks: Mapping[Status, int]
    """Number of subtasks by status."""
    rates: IncidentCounts
    """Numbers of incidents."""
    incidents: tuple[IncidentView, ...]
    """All incidents, in order."""
    base_check: BaseView
    """The setup command and the gate on the base."""


def base_view(state: RunState) -> BaseView:
    causes = _causes(state)
    return BaseView(state.setup, state.base_checks, state.base_failure, causes, advice(causes))


def _causes(state: RunState) -> tuple[str, ...]:
    if state.base_failure is not None:
        if state.setup is not None and not state.setup.check.passed:
            return state.setup.check.causes
        return key_lines(f"{state.base_failure.summary}\n{state.base_failure.evidence}")
    red = [check for check in state.base_checks if not check.fine]
    return tuple(line for check in red for line in (check.causes or key_lines(check.output)))


def run_word(state: RunState, now: float, *, alive: bool) -> RunStatus:
    """The status of a run."""
    if state.ending is not None:
        return "refused" if is_refused(state) else state.ending
    if not alive:
        return "interrupted"
    if state.draining:
        return "draining"
    if state.paused:
        return "paused"
    if awaits_approval(state) and not any(state.underway()) and state.planning.open is None:
        return "awaiting approval"
    if over_budget(state, now) is not None:
        return "over budget"
    if planner_is_lost(state) and not any(state.underway()):
        return "waiting for the planner"
    if any(not question.aside for question in state.open_questions()) and is_idle(state, now):
        return "waiting for an answer"
    return "planning" if not state.plan.subtasks else "running"


def commits_tested(state: RunState) -> int:
    """Number of landed commits whose own tree was tested."""
    return sum(attempt.tested for subtask in state.subtasks.values() for attempt in subtask.attempts)


def tokens_view(spend: Spend) -> TokensView:
    usage = spend.usage
    return TokensView(spend.calls, usage.input, usage.output, usage.cache_read, usage.cache_write)


def subtask_lines(state: RunState, now: float) -> tuple[SubtaskLine, ...]:
    """In plan order."""
    status = statuses(state, now)
    return tuple(_subtask_line(spec, state.subtasks[spec.id], status[spec.id]) for spec in state.plan.subtasks)


def _subtask_line(spec: Subtask, subtask: SubtaskState, status: Status) -> SubtaskLine:
    attempts, unchanged = len(subtask.attempts), subtask.unchanged
    return SubtaskLine(spec.id, spec.title, status, attempts, subtask.parts, subtask.landed, unchanged)


def outages(state: RunState, now: float) -> tuple[ServiceView, ...]:
    return tuple(_service(scope, outage, now) for scope, outage in state.service.items())


def _service(scope: str, outage: Outage, now: float) -> ServiceView:
    return ServiceView(
        family=scope or None,
        condition=outage.condition,
        why=outage.why,
        since=outage.since,
        seconds=round(now - outage.since, 3),
        message=outage_text(scope, outage),
    )


# ---- limits view -----------------------------------------------------------------------------------------------------
# The limits of a run, and the remaining amounts.


@dataclass(frozen=True, slots=True)
class LimitView:
    """A limit of a run."""

    limit: float | None
    """The limit. Null without a limit."""
    left: float | None
    """The remaining amount. Null without a limit."""


@dataclass(frozen=True, slots=True)
class LimitsView:
    """The limits of a run, including requested changes."""

    run: RunId
    """The name of the run."""
    alive: bool
    """Whether a process is running the run. If not, `fleet resume` applies requested changes."""
    changed: bool
    """Whether this call requested a change."""
    workers: int
    """Maximum number of agents at the same time."""
    budgets: Mapping[str, LimitView]
    """By unit: `dollars`, `minutes`, `tokens`, `attempts`."""


def limits_view(state: RunState, now: float, *, alive: bool, changed: bool) -> LimitsView:
    budgets = {unit: LimitView(limit=None, left=None) for unit in ROUNDED}
    for budget in run_budgets(state, now):
        budgets[budget.unit] = LimitView(budget.limit, round(budget.remaining, ROUNDED[budget.unit]))
    return LimitsView(state.run, alive, changed, state.policy.workers, budgets)


@dataclass(frozen=True, slots=True)
class LogView:
    """The log of the last run of the gate or the setup command."""

    kind: str
    """`gate` or `setup`."""
    log: str
    """The file."""
    text: str
    """The command, its output and its result. Very long output is cut in the middle."""
    earlier: tuple[str, ...]
    """The files of earlier runs, in order."""
