"""A run for scripts and people: its status, and its incidents."""

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
"""What an attempt under way is doing."""
RunStatus = Literal[
    "planning",
    "running",
    "paused",
    "draining",
    "awaiting approval",
    "waiting for an answer",
    "waiting for the planner",
    "over budget",
    "interrupted",  # no process runs it
    "refused",  # it ended before anything was done
    Ending,
]
"""The status of a run, as every face names it."""


@dataclass(frozen=True, slots=True)
class AgentsView:
    """Agents at the same time."""

    running: int
    """Now; 0 if no engine runs."""
    peak: int
    """The most so far."""
    limit: int
    """The most that are allowed."""


@dataclass(frozen=True, slots=True)
class LandingView:
    """The batches so far."""

    batches: int
    """Batches that were formed."""
    red: int
    """Batches with a failed check."""
    gate_runs: int
    """How often the gate was run."""
    queued: int
    """Verified subtasks that wait to land, those under test included."""
    testing: int
    """Batches under test."""
    full: bool
    """Whether so much work waits, for its checks or to land, that no new attempt starts before some has landed."""


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
    """An outage of the model service, for which calls wait."""

    family: str | None
    """The model family that it concerns; null: all of them."""
    condition: ServiceCondition
    """`down`, `limited` or `refused`."""
    why: str
    """Cause of the condition, from the last failed call."""
    since: float
    """When it began, in seconds since 1970."""
    seconds: float
    """Duration of the outage so far."""
    message: str
    """Description of the outage in a sentence."""


@dataclass(frozen=True, slots=True)
class SubtaskLine:
    """A subtask in short."""

    id: SubtaskId
    title: str
    status: Status
    attempts: int
    parts: tuple[SubtaskId, ...]
    """The parts it was split into."""
    landed: Sha | None
    """The commit that landed; null if none did."""
    unchanged: bool
    """Whether it is done, and no file changed."""


@dataclass(frozen=True, slots=True)
class PlannerHealth:
    """Whether the run's planner answers, and when it is called again if it does not."""

    calls: int
    """Number of calls of the run's planner."""
    failures_in_a_row: int
    """Number of failed calls since the last successful one."""
    last_failure: str | None
    """Why its last call failed; null if it succeeded."""
    next_try_s: float | None
    """Seconds until the next try."""


@dataclass(frozen=True, slots=True)
class BaseView:
    """How set-up and gate went on the base of a run, before anything was done."""

    setup: SetupRun | None
    """The last run of the set-up command; null if there was none."""
    gate: tuple[CheckRun, ...]
    """The project's gate on the base; empty if there is none, or it could not be run."""
    failure: Failure | None
    """Why the gate could not be run."""
    causes: tuple[str, ...]
    """If something failed: the lines of its output that matter."""
    advice: tuple[str, ...]
    """What to do about them."""


@dataclass(frozen=True, slots=True)
class RunEnding:
    """How a run ended."""

    ending: Ending
    word: str
    """The same; `refused` if it ended before anything was done."""
    why: str
    at: float
    is_good: bool
    """Whether everything landed."""
    refusal: BaseView | None
    """If it was refused: how set-up and gate went on the base."""


@dataclass(frozen=True, slots=True)
class RemainingView:
    """What is left of a run, if it continues as it did so far."""

    landed: int
    """Subtasks that have landed."""
    subtasks: int
    """Subtasks that are to land."""
    seconds: float
    """At work, until everything has landed."""
    dollars: float | None
    """What the whole run will have cost; null if the price of a call is unknown."""


@dataclass(frozen=True, slots=True)
class StatusView:
    """The status of a run."""

    run: RunId
    """Name of the run."""
    state: RunStatus
    """`planning`, `running`, `paused`, `draining`, `awaiting approval`, `waiting for an answer`,
    `waiting for the planner`, `over budget`, `interrupted`, `refused` (it ended before anything was done), or how it
    ended."""
    why: str
    """Why it ended as it did; empty before."""
    paused_by: str | None
    """Who paused it; `run.not_between`: the hours in which it starts nothing. Null if it is not paused."""
    causes: tuple[str, ...]
    """If set-up or gate failed on the base: the lines of the output that matter."""
    advice: tuple[str, ...]
    """What to do about them."""
    goal: str
    """Goal of the run."""
    repository: str
    """Path of the repository."""
    started_at: float
    """When it was started, in seconds since 1970."""
    plan_version: int
    """Current version of the plan. 0 before the first plan."""
    subtasks: Mapping[Status, int]
    """How many subtasks have each status."""
    landed: Progress
    """How many subtasks landed, of those that are to land."""
    agents: AgentsView
    """Number of concurrent agents."""
    figures: FigureValues
    """The figures that have no other place, each under its own name: `fleet/read/figures.py` lists them."""
    commits: int
    """Commits that landed."""
    commits_tested: int
    """Of these, commits whose own tree was tested."""
    landing: LandingView
    """State of the merge queue."""
    incidents: IncidentCounts
    """Numbers of incidents."""
    tokens: Mapping[Role, TokensView]
    """By role: `planner`, `worker`, and `sub_planner`, `resolver` and `reviewer` if there were any."""
    cost_dollars: float | None
    """Null if the price of a call is unknown."""
    cost_by_role: Mapping[Role, float | None]
    """Dollars by role. Null if the price of a call is unknown."""
    cost_in_doubt: Cost
    """What interrupted calls may have cost in addition, at most."""
    budget: Mapping[str, BudgetView]
    """The limits that are set, by their unit: `dollars`, `tokens`, `minutes`, `attempts`."""
    simulated: bool
    """Whether the model is simulated."""
    rehearsal: bool
    """Whether it is about history: none of its figures is one of a real run."""
    for_real: bool
    """Whether it is a rehearsal in which planner and workers did history's commits again."""
    sandbox: str
    """Sandbox that commands run in."""
    seconds: float
    """How long engines worked on it."""
    service: tuple[ServiceView, ...]
    """Outages of the model service, for which calls wait."""
    questions: tuple[QuestionView, ...]
    """Open questions."""
    needs: tuple[NeedKind, ...]
    """What it needs from a person, the most urgent first: `resume`, `approve`, `answer`, `budget`, `unpause`."""
    ends_in_s: float | None
    """Seconds until the run ends unless someone answers or approves; null while it has other work, or waits without a
    limit."""
    result_branch: str | None
    """Null while nothing was published."""
    base: Sha
    """Commit that the run is based on."""
    tip: Sha
    """Tip of the integration branch."""
    gate: str | None
    """The project's gate; empty: there is none; null: not recorded."""
    never_passed: tuple[str, ...]
    """Commands of the gate that failed on the base and on every tree since."""
    warnings: tuple[str, ...]
    """Warnings about the run."""
    flat: bool | None
    """Whether the first plan has a single subtask; null before there is a plan."""
    plan_warnings: tuple[str, ...]
    """The linter's warnings about the plan."""
    plan_values: Mapping[str, object]
    """The values of the parameters of the plan file."""
    waiting_for_approval: Mapping[SubtaskId, tuple[str, ...]]
    """The subtasks that wait for approval, each with the rules that it breaks."""
    reviews: tuple[Review, ...]
    """Approvals and rejections of the plan, in order."""
    change_reviews: ReviewsView | None
    """What models found in changes that they did not make; null if nothing was reviewed."""
    nodes: tuple[NodeUseView, ...]
    """The machines beside this one that work for it, by name."""
    waiting_for_machines: Mapping[SubtaskId, str]
    """The first of the subtasks that could start, but for a machine with the labels that they ask for; and why."""
    planner: PlannerHealth
    """Health of the run's planner."""
    estimates: tuple[SubtaskEstimate, ...]
    """What comparable subtasks cost and took that landed, for each worker and size of its open subtasks."""
    remaining: RemainingView | None
    """What is left of it, if it continues as it did so far; null where that says nothing: fewer than five subtasks have
    landed, the run waits for a person, no process works on it, or it has ended."""


@dataclass(frozen=True, slots=True)
class RunView:
    """A run with the story of every incident."""

    run: RunId
    """Name of the run."""
    state: RunStatus
    """The same word as in a status."""
    why: str
    """Why it ended; empty while it has not."""
    goal: str
    """Goal of the run."""
    simulated: bool
    """Whether the model is simulated."""
    rehearsal: bool
    """Whether it is about history."""
    for_real: bool
    """Whether it is a rehearsal in which planner and workers did history's commits again."""
    subtasks: Mapping[Status, int]
    """How many subtasks have each status."""
    rates: IncidentCounts
    """Numbers of incidents."""
    incidents: tuple[IncidentView, ...]
    """All incidents, in order."""
    base_check: BaseView
    """Set-up and gate on the base."""


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
    """The status of a run as one word or two."""
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
    """How many of the landed commits had their own tree tested, not only a later one."""
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
# The limits of a run, and how much of each is used.


@dataclass(frozen=True, slots=True)
class LimitView:
    """One limit of a run; null means no limit."""

    limit: float | None
    """The limit; null: there is none."""
    left: float | None
    """How much of it is left; null where there is no limit."""


@dataclass(frozen=True, slots=True)
class LimitsView:
    """The limits of a run, as they are once its engine has taken what was requested."""

    run: RunId
    """The name of the run."""
    alive: bool
    """Whether a process runs the run; if not, `fleet resume` takes what was requested."""
    changed: bool
    """Whether this call requested a change."""
    workers: int
    """The most agents at once."""
    budgets: Mapping[str, LimitView]
    """By unit: `dollars`, `minutes`, `tokens`, `attempts`."""


def limits_view(state: RunState, now: float, *, alive: bool, changed: bool) -> LimitsView:
    budgets = {unit: LimitView(limit=None, left=None) for unit in ROUNDED}
    for budget in run_budgets(state, now):
        budgets[budget.unit] = LimitView(budget.limit, round(budget.remaining, ROUNDED[budget.unit]))
    return LimitsView(state.run, alive, changed, state.policy.workers, budgets)


@dataclass(frozen=True, slots=True)
class LogView:
    """The log of the last run of the project's gate or of the set-up command."""

    kind: str
    """`gate` or `setup`."""
    log: str
    """The file."""
    text: str
    """Its content: the command, its output (of a very long one, both ends), and how it ended."""
    earlier: tuple[str, ...]
    """The files of earlier runs, the first one first."""
