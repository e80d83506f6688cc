"""What facts are made of: failures, reports, checks, candidates. Written to the journal, so only ever added to."""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field, JsonValue

from fleet.core.base.ids import RunId, Sha, SubtaskId
from fleet.core.plans.limits import Ladder, Size
from fleet.core.plans.plan import Effort, Shape

FailureKind = Literal[
    "transient",  # the model service: limits, overload, a broken connection or stream
    "protocol",  # invalid answers: no tool, malformed input, an unknown stop reason
    "tool",  # a tool or command the worker needs does not work
    "check",  # an acceptance check failed
    "vacuous",  # an acceptance check passed before any work was done
    "empty",  # claimed done, nothing changed
    "bounds",  # changed files that it may not change, or that may not be committed
    "conflict",  # does not merge with what has landed since
    "integration",  # merges, but the merged tree is red
    "too_complex",
    "ambiguous",
    "refusal",
    "budget",  # turns, time, tokens or dollars of the attempt or its subtask are spent
    "spent",  # the budget of the run: the attempt was stopped and continues when it is raised
    "infrastructure",  # ours or the machine's: worktrees, sandboxes, disk
    "configuration",  # a wrong key, an unknown model: nothing works until a person fixes it
    "internal",  # a bug of ours: the step is tried once more, then set aside
    "crash",  # what a bug of ours was called in older journals
    "other",
]
FREE: frozenset[FailureKind] = frozenset({"transient", "infrastructure", "internal", "crash", "configuration", "spent"})
"""Failures that are not the subtask's fault and use up none of its attempts. This never changes."""
Strategy = Literal["first", "retry", "resolve", "alternative", "split", "human"]
Remedy = Literal["retry", "resolve", "planner", "skip"]
RungReason = Literal[
    "evidence",  # it landed subtasks for the fewest dollars
    "order",  # too little was seen of it, so the configured order decides
    "named",  # the configuration names it
    "explored",  # in old journals: it may land work for fewer, and too little is known of it
    "unpriced",  # in old journals: a price on the ladder is unknown, so its first rung is taken
    "climbed",  # the rung below failed
    "again",  # the attempt before failed for a reason that no other rung mends
]
Role = Literal["planner", "sub_planner", "worker", "resolver", "reviewer"]
"""The purpose of a model call."""
ServiceCondition = Literal[
    "up",
    "down",  # no answer, or every call fails
    "limited",  # a lasting limit
    "refused",  # the key, its rights or its credit
]
SetupNetwork = Literal["none", "base", "all"]
"""Where the set-up command has the network: nowhere, on the commit a run starts from, or on every commit."""
Ending = Literal["landed", "partial", "cancelled", "aborted", "budget", "failed"]


RehearsalNote = Literal[
    "by_hand",  # no worker may make this change, or it would come out different: the rehearsal made it itself
    "red",  # the gate fails on the commit as it is in history
    "flaky",  # the gate failed on a commit, then passed on it
    "fault",  # a fault that was mixed in; not written any more, kept so that old journals load
]


class PastTask(Shape):
    """A commit of history that a worker does again from its message."""

    subtask: SubtaskId
    commit: Sha
    parent: Sha
    """The commit that every attempt starts from."""
    tests: tuple[str, ...] = ()
    """The tests that the commit added, changed or removed, if the gate is red on the parent with them. Empty: only the
    gate can judge the result."""


class LeftOut(Shape):
    """A commit of history that is not done again, and why."""

    commit: Sha
    title: str
    why: str


class Rehearsal(Shape):
    """How a rehearsal replays history."""

    faults: float = Field(default=0.0, ge=0, le=1)
    """The share of attempts in which something was made to go wrong. Not written any more, kept so that old journals
    load."""
    seed: int = 0
    """What decided which, and how. Kept for the same reason."""
    for_real: bool = False
    """Whether planner and workers do the commits again from their messages."""
    head: Sha = Sha("")
    """The newest of the commits that were looked at for that."""
    tasks: tuple[PastTask, ...] = ()
    """The commits that are done again, the oldest first."""
    left_out: tuple[LeftOut, ...] = ()
    """Those that are not."""


class GateTrial(Shape):
    """One run of the gate on the newest commit of a rehearsal, in the box."""

    passed: bool
    seconds: float = 0.0
    processor_s: float = 0.0
    peak_bytes: int = 0
    """The most memory that it was seen to use; 0 if it ended before anyone looked."""
    disk_bytes: int = 0
    """What it left in its worktree."""
    output: str = ""
    """The end of what it printed."""


class IssueSource(Shape):
    """The issue of a forge that a run's goal was read from."""

    reference: str
    """As on the command line: `gh:OWNER/REPO#12`."""
    url: str
    title: str
    """Someone else wrote it."""


class Relanding(Shape):
    """A result that is landed again on top of a branch that has moved, so that the branch can take it."""

    run: RunId
    """The run whose result it is."""
    branch: str
    """The branch that is to take it. The base of the relanding is its commit."""
    since: Sha
    """The commit below the first one that is landed again."""
    result: Sha
    """The last commit that is landed again."""
    commits: dict[SubtaskId, Sha] = Field(default={})
    """By subtask, the commit of the result that its first attempt brings."""
    resolves: bool = True
    """Whether what does not fit is done again by a worker."""


class Failure(Shape):
    """Why something failed, with the evidence a planner needs to choose a better approach."""

    kind: FailureKind
    summary: str
    evidence: str = ""
    status: int | None = None
    """The HTTP status of a service's answer, if that is the reason."""


class Report(Shape):
    """What a worker says it did: a claim."""

    status: Literal["done", "failed", "blocked"]
    summary: str
    result: dict[str, JsonValue] = Field(default={})
    error_kind: str | None = None
    error_message: str | None = None
    recommendations: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    discovered: tuple[str, ...] = ()


class RanTests(Shape):
    """What a check ran or found, as the runner reported it. Never written to the journal: there may be much of it."""

    ran: frozenset[str] = frozenset()
    """Tests that finished: they passed or failed."""
    passed: frozenset[str] = frozenset()
    count: int | None = None
    """How many tests finished, where the runner's summary has only their number; on success they all passed."""
    failed: int = 0
    """How many failed, or could not even be collected."""
    findings: frozenset[str] | None = None
    """What an analyser found; None for a runner of tests."""

    @property
    def number_passed(self) -> int:
        return len(self.passed) if self.count is None else self.count - self.failed


class CheckRun(Shape):
    """The result of a check: run by us, in a sandbox, on a known tree."""

    criterion: str
    command: str
    passed: bool
    exit_code: int | None = None
    timed_out: bool = False
    seconds: float = 0.0
    peak_bytes: int = 0
    """The most memory that it was seen to use; 0 if it ended before anyone looked."""
    output: str = ""
    """The end of its output."""
    flaky: bool = False
    """It failed, then passed when it was run again on the same tree."""
    excused: str = ""
    """Why its failure blocks nothing, if there is a reason: a rehearsal lands what was red in history."""
    tree: Sha = Sha("")
    causes: tuple[str, ...] = ()
    """If it failed: the lines of its whole output that matter."""
    log: str = ""
    """The file with its whole output, below the run's folder."""
    tests: int | None = None
    """How many tests passed, if their runner reported it."""
    node: str = ""
    """The node that ran it; empty: the manager's machine."""
    review: bool = False
    """It is what reviewers say, not the result of a command: see `ReviewVoted`."""
    ran_tests: RanTests | None = Field(default=None, exclude=True, repr=False)
    """The runner's report, for as long as results are compared with it."""

    @property
    def fine(self) -> bool:
        """Whether it does not block a landing: it passed, is flaky, or is excused."""
        return self.passed or self.flaky or bool(self.excused)


class SetupRun(Shape):
    """A run of the set-up command, which makes worktrees ready."""

    commit: Sha
    """The commit whose files it ran on."""
    check: CheckRun
    """The command and how it ended."""
    network: bool = False
    """Whether it had the network."""


class Member(Shape):
    """A candidate in a batch."""

    subtask: SubtaskId
    attempt: int
    commit: Sha
    tested: bool = False
    """If it landed: whether the tree of this very commit passed, not only a later one."""
    tree: Sha = Sha("")
    """If it landed: the tree of the commit. Empty if a crash took the record with it."""


class Ejected(Shape):
    """A candidate that is sent back."""

    subtask: SubtaskId
    attempt: int
    failure: Failure


class RungTally(Shape):
    """What attempts of one worker with one model and effort at subtasks of one size led to, and what they cost."""

    worker: str
    model: str
    effort: Effort | None
    size: Size
    landed: int = 0
    """How many landed."""
    failed: dict[FailureKind, int] = Field(default={})
    """How many failed otherwise, by kind. Failures that use up no attempt are left out."""
    priced: int = 0
    """How many of both have a known price."""
    dollars: float = 0.0
    """What these cost together."""
    timed: int = 0
    """Kept so that old journals load: how many have a known time."""
    seconds: float = 0.0
    """Kept so that old journals load: what these took together."""


class RungOption(Shape):
    """A rung as the first one for a subtask: what was seen of it."""

    model: str
    effort: Effort | None
    tried: int
    """Attempts with it at subtasks of this size that say something about it."""
    landed: int
    """How many of these landed."""
    dollars: float | None
    """The average cost of an attempt; none if nothing was seen, or the model's price is unknown."""
    per_landed: float | None
    """What all attempts cost for each one that landed; none if none landed, or the price is unknown."""
    lands: float | None = None
    """Kept so that old journals load, as are all after it."""
    low: float | None = None
    high: float | None = None
    least_per_landed: float | None = None
    most_per_landed: float | None = None


class RungChoice(Shape):
    """Which rung of its worker's ladder an attempt takes, and why."""

    rung: int
    """Its place on the ladder, from 0."""
    why: RungReason
    """`evidence`, `order`, `named`, `climbed` or `again`; in old journals also `explored` or `unpriced`."""
    options: tuple[RungOption, ...] = ()
    """All rungs of the ladder, where they were compared."""


class Happened(Shape):
    """What all facts have: a time."""

    at: float


# ---- estimate parts --------------------------------------------------------------------------------------------------
# What facts say about the cost and the time of subtasks to come, and the parts of forecasts in early journals.


class Spread(Shape):
    """The median of some amounts, the lowest and the highest."""

    median: float
    """Half of them are at most this."""
    low: float
    """The lowest."""
    high: float
    """The highest."""


class SubtaskEstimate(Shape):
    """What comparable subtasks cost and took until they landed, all attempts of each included."""

    worker: str
    size: Size
    """By the estimate in the plan."""
    model: str | None = None
    """The model that landed them; none: a program did."""
    landed: int = 0
    """How many landed subtasks it is based on; 0: fewer than five, so there are no figures."""
    dollars: Spread | None = None
    """None if the price of a model is unknown, and for programs."""
    seconds: Spread | None = None
    """Seconds of work. None if fewer than five of them landed in runs without interruption."""


# ---- kept so that old journals load: nothing writes these any more --------------------------------------------------


class CallTally(Shape):
    """Calls of a run's own planner with one model: what they took and cost together."""

    model: str
    first: bool
    """Whether they are the first calls of their runs, which read the repository; the others are shorter."""
    calls: int = 0
    seconds: float = 0.0
    dollars: float | None = 0.0
    """None if the price of a part is unknown."""


class Assumed(Shape):
    """What an early version assumed that a run costs and takes until something is seen."""

    ladders: dict[str, Ladder] = Field(default={})
    """A ladder for every worker that calls a model, also for those without rungs: their models."""
    planner: tuple[CallTally, ...] = ()
    """One first call of the planner, and one of the others."""
    gate_s: float = Field(default=60.0, ge=0)
    """What the gate takes until it was run."""
    program_s: float = Field(default=60.0, ge=0)
    """What a worker takes that is a program, at a medium subtask without an estimate."""


class Expectation(Shape):
    """An amount that is expected, with its doubt."""

    median: float
    """Half of all runs should need at most this."""
    p90: float
    """Nine of ten runs should need at most this."""


class Forecast(Shape):
    """What an early version expected a run to cost and to take, before anything was done."""

    dollars: Expectation | None
    """Of workers and planner together; none if no price is known."""
    planner: float = 0.0
    """The planner's part of the median."""
    minutes: Expectation
    """At work, with the workers of the run; waiting for people is not in it."""
    subtasks: int
    """How many subtasks the plan has."""
    workers: int
    """How many agents may work at once."""
    attempts: int = 0
    """How many earlier attempts it rests on; 0: on assumptions alone."""
    calls: int = 0
    """How many earlier calls of the planner it rests on."""
    unpriced: int = 0
    """Subtasks whose cost is unknown: it is left out of the dollars."""
    areas: int = 0
    """Areas, which are not planned yet: they are left out."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """What a person told those who work on a subtask. Their own words: trusted like the brief."""

    text: str
    by: str
    at: float
    interrupt: bool = False
    """Whether it stops the command that runs."""
