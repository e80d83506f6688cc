"""Facts about the run: its start and end, engine, base, budget and model calls."""

from typing import Literal

from pydantic import Field, JsonValue

from fleet.core.base.ids import RunId, Sha, SubtaskId
from fleet.core.base.usage import Cost, Usage
from fleet.core.facts.fact_parts import (
    Assumed,
    CallTally,
    CheckRun,
    Ending,
    Failure,
    GateTrial,
    IssueSource,
    Rehearsal,
    RehearsalNote,
    Relanding,
    Role,
    RungTally,
    ServiceCondition,
    SetupRun,
    SubtaskEstimate,
    TimedFact,
)
from fleet.core.plans.limits import Policy, RunOverrides
from fleet.core.plans.plan import Plan


class RunStarted(TimedFact):
    """A run started. Always the first fact, with the goal, the repository, the base and the limits."""

    kind: Literal["run_started"] = "run_started"
    run: RunId
    """Name of the run."""
    goal: str
    """Goal of the run, as given by the user."""
    repository: str
    """Path of the repository."""
    base: Sha
    """Base commit of the run."""
    base_name: str
    """Name of the base as given by the user: a branch, a tag or `HEAD`."""
    result_branch: str
    """Branch to which the run publishes landed work."""
    policy: Policy
    """Limits and choices of the run, from `[run]`, `[limits]`, `[landing]`, `[review]` and other sections."""
    plan: Plan | None = None
    """Plan given to the run, if any."""
    rollback: Plan | None = None
    """Rollback plan named by the plan, if it was found."""
    values: dict[str, JsonValue] = Field(default={})
    """Values of the plan file's parameters. The plan already contains them."""
    sandbox: str = "bubblewrap"
    """Sandbox that commands run in."""
    simulated: bool = False
    """Whether the model is simulated."""
    choices: RunOverrides = RunOverrides()
    """Settings from the command line and the environment."""
    gate: str | None = None
    """Command of the project's gate. Empty if there is none, and null in runs of early versions."""
    rehearsal: Rehearsal | None = None
    """How the run replays history, if it is a rehearsal."""
    relanding: Relanding | None = None
    """Result that the run lands again, if that is its purpose."""
    issue: IssueSource | None = None
    """Issue that the goal was read from, if any."""


class EngineStarted(TimedFact):
    """A process took over the run. Attempts that were running are recorded as interrupted."""

    kind: Literal["engine_started"] = "engine_started"
    epoch: int
    """Number of engine starts of this run, including this one."""
    pid: int
    """Process id of the engine."""
    host: str
    """Name of the machine that the engine runs on."""
    version: str
    """Version of fleet."""
    sandbox: str | None = None
    """Sandbox for commands from now on. Null: unchanged."""
    base_url: str | None = None
    """Model service named on the command line. Null: the configured service."""
    choices: RunOverrides | None = None
    """Settings from all command lines and environments of the run so far. Null: unchanged."""
    planner: bool = True
    """Whether the planner can be called. Without an API key, each failure goes straight to a human."""


class EngineStopped(TimedFact):
    """An engine left the run in an orderly way. A crash leaves no such fact."""

    kind: Literal["engine_stopped"] = "engine_stopped"
    why: str
    """`drained` or `stopped`."""


class BaseChecked(TimedFact):
    """The project's gate ran on the base commit, before any money was spent."""

    kind: Literal["base_checked"] = "base_checked"
    base: Sha
    """Commit that was checked."""
    checks: tuple[CheckRun, ...] = ()
    """Commands of the gate, with their results."""
    failure: Failure | None = None
    """Why the gate could not run."""


class EvidenceRead(TimedFact):
    """Results of earlier runs of this repository, used to choose models and to estimate cost and time."""

    kind: Literal["evidence_read"] = "evidence_read"
    runs: int
    """Number of runs read."""
    tallies: tuple[RungTally, ...] = ()
    """Results of their attempts."""
    estimates: tuple[SubtaskEstimate, ...] = ()
    """Cost and duration of their landed subtasks, for each group of at least five comparable subtasks."""
    calls: tuple[CallTally, ...] = ()
    """Not written any more, so that old journals load: duration and cost of planner calls."""
    assumed: Assumed | None = None
    """Not written any more, so that old journals load: other assumptions."""


class SetupRan(TimedFact):
    """The setup command ran, on the base or on a commit that changes one of its inputs."""

    kind: Literal["setup_ran"] = "setup_ran"
    setup: SetupRun
    """The commit, the command, its result, and whether it had network access."""


class WarningNoted(TimedFact):
    """A warning that does not stop the run."""

    kind: Literal["warning_noted"] = "warning_noted"
    text: str
    """Text of the warning."""
    evidence: str = ""
    """Traceback, if the cause is an internal error of fleet."""


class ModelCalled(TimedFact):
    """A model answered a call."""

    kind: Literal["model_called"] = "model_called"
    role: Role
    """Role for which the model was called."""
    model: str
    """Name of the model."""
    usage: Usage
    """Tokens used by the call."""
    dollars: float | None
    """Price of the call. Null if the price of the model is unknown."""
    seconds: float
    """Duration of the call."""
    call: int | None = None
    """Number of the planner call, if it was one."""
    area: SubtaskId | None = None
    """Area whose planner made the call, if any."""
    subtask: SubtaskId | None = None
    """Subtask that the call was made for, if any."""
    attempt: int | None = None
    """Number of the attempt that the call was made for, if any."""
    turn: int = 0
    """Turn of the conversation, from 0."""
    doing: str = ""
    """Short summary of the tool calls in the answer."""
    said: str = ""
    """Text of the answer, or a summary of the model's thinking."""


class CallsHeld(TimedFact):
    """Highest total cost of the model calls in flight. A crash would leave this amount in doubt."""

    kind: Literal["calls_held"] = "calls_held"
    cost: Cost
    """Highest possible cost of these calls."""


class CallLost(TimedFact):
    """A model call was interrupted: it was billed, but its answer never arrived."""

    kind: Literal["call_lost"] = "call_lost"
    role: Role
    """Role for which the model was called."""
    model: str
    """Name of the model."""
    cost: Cost
    """Highest possible cost of the call."""
    subtask: SubtaskId | None = None
    """Subtask that the call was made for, if any."""
    attempt: int | None = None
    """Number of the attempt that the call was made for, if any."""


class CallRefused(TimedFact):
    """The remaining budget does not cover a model call. No new work starts until the budget is raised."""

    kind: Literal["call_refused"] = "call_refused"
    why: str
    """Budget that is too small, and by how much."""


class BudgetRanLow(TimedFact):
    """A budget reached its soft limit. The planner is informed so that it can finish nearly complete work."""

    kind: Literal["budget_ran_low"] = "budget_ran_low"
    why: str
    """Budget that runs low, and how much of it is left."""


class ServiceChanged(TimedFact):
    """The model service entered a lasting error condition, changed it, or recovered."""

    kind: Literal["service_changed"] = "service_changed"
    scope: str = ""
    """Model family affected. Empty: the entire service."""
    condition: ServiceCondition
    """New condition of the service. Model calls wait until it is `up`."""
    why: str = ""
    """Cause of the condition, from the last failed call."""
    status: int | None = None
    """HTTP status of the service's response, if there was one."""


class GateTried(TimedFact):
    """The gate ran several times on the newest commit of a rehearsal, before the rehearsal started."""

    kind: Literal["gate_tried"] = "gate_tried"
    command: str = ""
    """Command of the gate. Empty if there is none."""
    trials: tuple[GateTrial, ...] = ()
    """Result of each run of the gate."""
    setup_s: float = 0.0
    """Duration of the setup command."""


class RehearsalNoted(TimedFact):
    """An observation about a commit in a rehearsal."""

    kind: Literal["rehearsal_noted"] = "rehearsal_noted"
    what: RehearsalNote
    """Whether a worker must not make the change, or the gate fails or is flaky on it. Old journals: also an injected
    fault."""
    subtask: SubtaskId | None = None
    """Subtask that replays the commit. Null: the base."""
    text: str = ""
    """Details of the observation."""


class ResultScored(TimedFact):
    """In a `--for-real` rehearsal, landed work was tested with the tests of the original commit."""

    kind: Literal["result_scored"] = "result_scored"
    subtask: SubtaskId
    """Subtask whose result was tested."""
    commit: Sha
    """The result with those tests applied. This commit is on no branch."""
    passed: bool
    """Whether the tests passed."""
    checks: tuple[CheckRun, ...] = ()
    """Commands that ran, with their results."""
    lost: tuple[str, ...] = ()
    """Tests that pass on the original commit and failed here."""
    failure: Failure | None = None
    """Why the tests could not run."""


class RollbackStarted(TimedFact):
    """The plan failed after it had changed something. The remaining subtasks are dropped and its rollback plan runs."""

    kind: Literal["rollback_started"] = "rollback_started"
    why: str
    """Failure that started the rollback."""


class RunEnded(TimedFact):
    """The run ended. It can be reopened unless everything landed."""

    kind: Literal["run_ended"] = "run_ended"
    ending: Ending
    """How the run ended."""
    why: str
    """Reason, in a sentence."""


class RunReopened(TimedFact):
    """A run that had ended continues, because a user answered a question or raised a limit."""

    kind: Literal["run_reopened"] = "run_reopened"
    by: str
    """User who reopened the run."""


RunFact = (
    RunStarted
    | EngineStarted
    | EngineStopped
    | BaseChecked
    | EvidenceRead
    | SetupRan
    | WarningNoted
    | ModelCalled
    | CallsHeld
    | CallLost
    | CallRefused
    | BudgetRanLow
    | ServiceChanged
    | GateTried
    | RehearsalNoted
    | ResultScored
    | RollbackStarted
    | RunEnded
    | RunReopened
)


# ---- node facts ------------------------------------------------------------------------------------------------------
# Facts about nodes, the other machines of a run, and requests about them.


class NodeConnected(TimedFact):
    """A node connected and is ready to accept work."""

    kind: Literal["node_connected"] = "node_connected"
    node: str
    """Name of the node in `[nodes.NAME]`."""
    version: str
    """Version of fleet on the node."""
    host: str
    """Host name reported by the node. Untrusted."""
    processors: int
    """Number of processors available on the node."""
    memory_bytes: int
    """Memory available on the node."""
    workers: int
    """Maximum number of concurrent attempts on the node."""
    checks: int
    """Maximum number of concurrent check orders on the node."""
    labels: tuple[str, ...] = ()
    """Labels of the node in the configuration."""
    lands: bool = False
    """Whether the node's results for merged trees are trusted."""
    skew_s: float = 0.0
    """How far the node's clock is ahead of the manager's, in seconds."""
    commits: int = 0
    """Number of the repository's commits that the node already had."""
    lacks: tuple[str, ...] = ()
    """Worker kinds that can't run on the node, because their program is not installed."""
    part_of: str = ""
    """Cluster that the node belongs to."""


class NodeLost(TimedFact):
    """A node is not available."""

    kind: Literal["node_lost"] = "node_lost"
    node: str
    """Name of the node in `[nodes.NAME]`."""
    why: str
    """Why the node is not available."""
    banned: bool = False
    """Whether the node violated the protocol. The run does not use it again."""


class NodeAddRequested(TimedFact):
    """A user added a node to a running run. The engine reads `[nodes]` again."""

    kind: Literal["node_add_requested"] = "node_add_requested"
    node: str
    """Name of the node in `[nodes.NAME]`."""
    by: str
    """User who sent the request."""


class NodeDrained(TimedFact):
    """A user drained a node: it accepts no new work, and running work finishes."""

    kind: Literal["node_drained"] = "node_drained"
    node: str
    """Name of the node in `[nodes.NAME]`."""
    by: str
    """User who sent the request."""


class NodeUndrained(TimedFact):
    """A user allowed a drained node to accept work again."""

    kind: Literal["node_undrained"] = "node_undrained"
    node: str
    """Name of the node in `[nodes.NAME]`."""
    by: str
    """User who sent the request."""


NodeFact = NodeConnected | NodeLost | NodeAddRequested | NodeDrained | NodeUndrained
