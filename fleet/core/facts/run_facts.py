"""Facts about the run as a whole: its engine, its base, its budget, the calls to models, its end."""

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
    Happened,
    IssueSource,
    Rehearsal,
    RehearsalNote,
    Relanding,
    Role,
    RungTally,
    ServiceCondition,
    SetupRun,
    SubtaskEstimate,
)
from fleet.core.plans.limits import Choices, Policy
from fleet.core.plans.plan import Plan


class RunStarted(Happened):
    """A run begins: its goal, repository, base and limits. Always the first fact."""

    kind: Literal["run_started"] = "run_started"
    run: RunId
    goal: str
    repository: str
    base: Sha
    base_name: str
    result_branch: str
    policy: Policy
    plan: Plan | None = None
    rollback: Plan | None = None
    """The rollback plan that the plan names, if it was found."""
    values: dict[str, JsonValue] = Field(default={})
    """The values of the plan file's parameters. They are in the plan already."""
    sandbox: str = "bubblewrap"
    simulated: bool = False
    choices: Choices = Choices()
    """What its command line and environment set."""
    gate: str | None = None
    """The project's gate; empty: there is none. None in runs from before this was recorded."""
    rehearsal: Rehearsal | None = None
    """How history is replayed, if that is all the run does."""
    relanding: Relanding | None = None
    """The result that is landed again, if that is what the run does."""
    issue: IssueSource | None = None
    """The issue that the goal was read from, if it was."""


class EngineStarted(Happened):
    """A process took over the run. Attempts it finds under way were interrupted."""

    kind: Literal["engine_started"] = "engine_started"
    epoch: int
    pid: int
    host: str
    version: str
    sandbox: str | None = None
    """How commands run from now on; None means as before."""
    base_url: str | None = None
    """The model service named on the command line; None means the configured one."""
    choices: Choices | None = None
    """What command lines and environments of the run set so far; None means as before."""
    planner: bool = True
    """Whether the planner can be called: without an API key, failures go to a human at once."""


class EngineStopped(Happened):
    """A process left the run in good order. A crash leaves no such fact."""

    kind: Literal["engine_stopped"] = "engine_stopped"
    why: str


class BaseChecked(Happened):
    """The project's gate was run on the base, before anything is spent."""

    kind: Literal["base_checked"] = "base_checked"
    base: Sha
    checks: tuple[CheckRun, ...] = ()
    failure: Failure | None = None
    """Why it could not be checked."""


class EvidenceRead(Happened):
    """What past runs of this repository say about rungs and about subtasks, for first rungs and estimates."""

    kind: Literal["evidence_read"] = "evidence_read"
    runs: int
    """How many runs were read."""
    tallies: tuple[RungTally, ...] = ()
    """What their attempts led to."""
    estimates: tuple[SubtaskEstimate, ...] = ()
    """What their landed subtasks cost and took, wherever at least five are comparable."""
    calls: tuple[CallTally, ...] = ()
    """Kept so that old journals load: what calls of their planners took and cost."""
    assumed: Assumed | None = None
    """Kept so that old journals load: what was assumed besides."""


class SetupRan(Happened):
    """The set-up command was run, on the base or where something that it depends on has changed."""

    kind: Literal["setup_ran"] = "setup_ran"
    setup: SetupRun
    """The commit that it ran on, the command, how it ended, and whether it had the network."""


class WarningNoted(Happened):
    """A person should know something that does not stop the run."""

    kind: Literal["warning_noted"] = "warning_noted"
    text: str
    evidence: str = ""
    """The trace, if an error of fleet is the reason."""


class ModelCalled(Happened):
    """A model answered; its usage and price."""

    kind: Literal["model_called"] = "model_called"
    role: Role
    model: str
    usage: Usage
    dollars: float | None
    """None means that the price of this model is unknown."""
    seconds: float
    call: int | None = None
    """The number of the planner's call, if it was one."""
    area: SubtaskId | None = None
    subtask: SubtaskId | None = None
    attempt: int | None = None
    turn: int = 0
    doing: str = ""
    """The tools the answer calls, in a few words."""
    said: str = ""
    """What the model said, or the summary of its thinking."""


class CallsHeld(Happened):
    """The calls under way may cost up to this much, which is what a crash would leave in doubt."""

    kind: Literal["calls_held"] = "calls_held"
    cost: Cost


class CallLost(Happened):
    """A call was interrupted: its answer was paid for and never came. It cost at most this much."""

    kind: Literal["call_lost"] = "call_lost"
    role: Role
    model: str
    cost: Cost
    subtask: SubtaskId | None = None
    attempt: int | None = None


class CallRefused(Happened):
    """The rest of the run's budget does not cover a call: nothing new begins until it is raised."""

    kind: Literal["call_refused"] = "call_refused"
    why: str


class BudgetRanLow(Happened):
    """A budget reached its soft limit: the planner is informed, so that it finishes what is nearly done."""

    kind: Literal["budget_ran_low"] = "budget_ran_low"
    why: str


class ServiceChanged(Happened):
    """A lasting problem of the model service changed: the condition all calls wait for, or `up`."""

    kind: Literal["service_changed"] = "service_changed"
    scope: str = ""
    """The model family it is about; empty means the whole service."""
    condition: ServiceCondition
    why: str = ""
    status: int | None = None


class GateTried(Happened):
    """Before a rehearsal began, the gate was run on its newest commit again and again."""

    kind: Literal["gate_tried"] = "gate_tried"
    command: str = ""
    """The gate; empty: there is none."""
    trials: tuple[GateTrial, ...] = ()
    """How each run of it ended."""
    setup_s: float = 0.0
    """What the set-up took."""


class RehearsalNoted(Happened):
    """A rehearsal found out something about a commit of history."""

    kind: Literal["rehearsal_noted"] = "rehearsal_noted"
    what: RehearsalNote
    """Whether no worker may make the change, or the gate is red or flaky on it. Old journals: also a fault mixed in."""
    subtask: SubtaskId | None = None
    """The subtask that replays the commit; None: the base."""
    text: str = ""


class ResultScored(Happened):
    """In a rehearsal for real, what landed was judged with the tests that history's commit brought."""

    kind: Literal["result_scored"] = "result_scored"
    subtask: SubtaskId
    commit: Sha
    """The result with those tests laid over it. It is on no branch."""
    passed: bool
    checks: tuple[CheckRun, ...] = ()
    lost: tuple[str, ...] = ()
    """Tests that pass on history's commit and did not pass here."""
    failure: Failure | None = None
    """Why it could not be judged."""


class RollbackStarted(Happened):
    """The plan failed after it had changed something: the rest is dropped and its rollback plan runs."""

    kind: Literal["rollback_started"] = "rollback_started"
    why: str


class RunEnded(Happened):
    """The run is over. It can be reopened unless all of it landed."""

    kind: Literal["run_ended"] = "run_ended"
    ending: Ending
    why: str


class RunReopened(Happened):
    """An ended run continues because a person answered or raised a limit."""

    kind: Literal["run_reopened"] = "run_reopened"
    by: str


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
# Facts about nodes: the other machines that work for a run, and what people asked of them.


class NodeConnected(Happened):
    """A node greeted and is ready: from here on it gets work."""

    kind: Literal["node_connected"] = "node_connected"
    node: str
    version: str
    """Its version of fleet."""
    host: str
    """What it calls itself. Untrusted."""
    processors: int
    """How many it may use."""
    memory_bytes: int
    """How much it has."""
    workers: int
    """How many attempts it works on at once."""
    checks: int
    """How many orders for checks it has at once."""
    labels: tuple[str, ...] = ()
    """What the configuration says that it has."""
    lands: bool = False
    """Whether its verdict on a merged tree counts."""
    skew_s: float = 0.0
    """How far its clock is ahead of the manager's, in seconds."""
    commits: int = 0
    """The commits of the repository that it had already."""
    lacks: tuple[str, ...] = ()
    """Workers that can't work there: their program is not installed."""
    part_of: str = ""
    """The cluster that it is a machine of."""


class NodeLost(Happened):
    """A node can't be used any more, or not yet."""

    kind: Literal["node_lost"] = "node_lost"
    node: str
    why: str
    banned: bool = False
    """Whether it sent what it may not send: it gets nothing more in this run."""


class NodeAddRequested(Happened):
    """A person wants a node to join that is in the configuration by now. The engine reads `[nodes]` again."""

    kind: Literal["node_add_requested"] = "node_add_requested"
    node: str
    by: str


class NodeDrained(Happened):
    """A person wants nothing new on a node. What runs there ends there."""

    kind: Literal["node_drained"] = "node_drained"
    node: str
    by: str


class NodeUndrained(Happened):
    """A person lets a drained node get work again."""

    kind: Literal["node_undrained"] = "node_undrained"
    node: str
    by: str


NodeFact = NodeConnected | NodeLost | NodeAddRequested | NodeDrained | NodeUndrained
