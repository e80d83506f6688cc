"""Parts of facts: failures, reports, checks, candidates. The journal contains them, so fields are only ever added."""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field, JsonValue

from fleet.core.base.ids import RunId, Sha, SubtaskId
from fleet.core.plans.limits import Ladder, Size
from fleet.core.plans.plan import Effort, FrozenModel

FailureKind = Literal[
    "transient",  # the model service: limits, overload, a broken connection or stream
    "protocol",  # invalid answers: no tool, malformed input, an unknown stop reason
    "tool",  # a tool or command the worker needs does not work
    "check",  # an acceptance check failed
    "vacuous",  # an acceptance check passed before any work was done
    "empty",  # reported done, but no file changed
    "bounds",  # changed files that it may not change, or that may not be committed
    "conflict",  # does not merge with work that landed since
    "integration",  # merges, but the merged tree is red
    "too_complex",
    "ambiguous",
    "refusal",
    "budget",  # turns, time, tokens or dollars of the attempt or its subtask are spent
    "spent",  # the budget of the run: the attempt was stopped and continues when it is raised
    "infrastructure",  # ours or the machine's: worktrees, sandboxes, disk
    "configuration",  # a wrong key or an unknown model, which a human has to fix
    "internal",  # a bug in fleet: the step is retried once, then set aside
    "crash",  # a bug in fleet, in older journals
    "other",
]
FREE: frozenset[FailureKind] = frozenset({"transient", "infrastructure", "internal", "crash", "configuration", "spent"})
"""Failures that the subtask did not cause. They do not count against its attempts. This set never changes."""
Strategy = Literal["first", "retry", "resolve", "alternative", "split", "human"]
Remedy = Literal["retry", "resolve", "planner", "skip"]
RungReason = Literal[
    "evidence",  # it landed subtasks for the fewest dollars
    "order",  # too little was seen of it, so the configured order decides
    "named",  # the configuration names it
    "explored",  # in old journals: it may land work for fewer, and too little is known of it
    "unpriced",  # in old journals: a price on the ladder is unknown, so its first rung is taken
    "climbed",  # the rung below failed
    "again",  # the previous attempt failed for a reason that no other rung can fix
]
Role = Literal["planner", "sub_planner", "worker", "resolver", "reviewer"]
"""Purpose of a model call."""
ServiceCondition = Literal[
    "up",
    "down",  # no answer, or every call fails
    "limited",  # a lasting limit
    "refused",  # the key, its rights or its credit
]
SetupNetwork = Literal["none", "base", "all"]
"""When the setup command has network access: never, on the base commit, or on every commit."""
Ending = Literal["landed", "partial", "cancelled", "aborted", "budget", "failed"]


RehearsalNote = Literal[
    "by_hand",  # no worker may make this change, or it would come out different: the rehearsal made it itself
    "red",  # the gate fails on the commit as it is in history
    "flaky",  # the gate failed on a commit, then passed on it
    "fault",  # an injected fault, not written any more, so that old journals load
]


class PastTask(FrozenModel):
    """A commit of history that a worker redoes from its message."""

    subtask: SubtaskId
    """Subtask that redoes the commit."""
    commit: Sha
    """The original commit."""
    parent: Sha
    """Commit that every attempt starts from."""
    tests: tuple[str, ...] = ()
    """Tests that the commit added, changed or removed, if the gate fails on the parent with them. Empty: only the gate
    judges the result."""


class LeftOut(FrozenModel):
    """A commit of history that is not redone."""

    commit: Sha
    """The commit."""
    title: str
    """First line of its message."""
    why: str
    """Why it is left out."""


class Rehearsal(FrozenModel):
    """How a rehearsal replays history."""

    faults: float = Field(default=0.0, ge=0, le=1)
    """Share of attempts with an injected fault. Not written any more, so that old journals load."""
    seed: int = 0
    """Seed of the injected faults. Not written any more, so that old journals load."""
    for_real: bool = False
    """Whether the planner and the workers redo the commits from their messages."""
    head: Sha = Sha("")
    """Newest commit considered."""
    tasks: tuple[PastTask, ...] = ()
    """Commits to redo, the oldest first."""
    left_out: tuple[LeftOut, ...] = ()
    """Commits that are not redone."""


class GateTrial(FrozenModel):
    """One run of the gate on the newest commit of a rehearsal, in the sandbox."""

    passed: bool
    """Whether the gate passed."""
    seconds: float = 0.0
    """Duration of the run."""
    processor_s: float = 0.0
    """Processor time used, in seconds."""
    peak_bytes: int = 0
    """Highest memory use observed. 0 if the run ended before the first measurement."""
    disk_bytes: int = 0
    """Disk space used in the worktree."""
    output: str = ""
    """End of the output."""


class IssueSource(FrozenModel):
    """The issue that a run's goal was read from."""

    reference: str
    """Reference on the command line: `gh:OWNER/REPO#12`."""
    url: str
    """Address of the issue."""
    title: str
    """Title of the issue. Untrusted."""


class Relanding(FrozenModel):
    """A result that is landed again on top of a branch that has moved."""

    run: RunId
    """Run that made the result."""
    branch: str
    """Branch to merge into. Its commit is the base of the relanding."""
    since: Sha
    """Parent of the first commit that is landed again."""
    result: Sha
    """Last commit that is landed again."""
    commits: dict[SubtaskId, Sha] = Field(default={})
    """For each subtask, the commit that its first attempt reuses."""
    resolves: bool = True
    """Whether a worker redoes commits that do not apply."""


class Failure(FrozenModel):
    """Why something failed, with evidence for the planner."""

    kind: FailureKind
    """Class of the failure. [Recovery](recovery.md#the-ladder) describes the consequences."""
    summary: str
    """Failure in one sentence."""
    evidence: str = ""
    """End of a check's output, the worker's report, or paths."""
    status: int | None = None
    """HTTP status of the service's response, if that is the cause."""


class Report(FrozenModel):
    """A worker's report. Not verified."""

    status: Literal["done", "failed", "blocked"]
    """`done`, `failed` or `blocked`."""
    summary: str
    """Summary in one sentence."""
    result: dict[str, JsonValue] = Field(default={})
    """Findings for subtasks that depend on this one."""
    error_kind: str | None = None
    """Kind of failure, as named by the worker."""
    error_message: str | None = None
    """Description of the failure by the worker."""
    recommendations: tuple[str, ...] = ()
    """Advice for the planner."""
    needs: tuple[str, ...] = ()
    """Information that the worker is missing."""
    discovered: tuple[str, ...] = ()
    """Unplanned work that the worker discovered."""


class RanTests(FrozenModel):
    """Tests or findings reported by a check's runner. Never written to the journal, because there may be very many."""

    ran: frozenset[str] = frozenset()
    """Tests that finished, passed or failed."""
    passed: frozenset[str] = frozenset()
    """Tests that passed."""
    count: int | None = None
    """Number of finished tests, if the runner reports only a number. On success, all of them passed."""
    failed: int = 0
    """Number of tests that failed or could not be collected."""
    findings: frozenset[str] | None = None
    """Findings of an analyser. None for a test runner."""

    @property
    def number_passed(self) -> int:
        return len(self.passed) if self.count is None else self.count - self.failed


class CheckRun(FrozenModel):
    """Result of a check that fleet ran in a sandbox on a known tree."""

    criterion: str
    """Criterion that the check proves."""
    command: str
    """Command that ran."""
    passed: bool
    """Whether the check passed."""
    exit_code: int | None = None
    """Exit code. Null if the command did not finish."""
    timed_out: bool = False
    """Whether the command was stopped at its time limit."""
    seconds: float = 0.0
    """Duration of the command."""
    peak_bytes: int = 0
    """Highest memory use observed. 0 if the command ended before the first measurement."""
    output: str = ""
    """End of the output."""
    flaky: bool = False
    """Whether the check failed and then passed on the same tree."""
    excused: str = ""
    """Why a failure does not block a landing, if so. Example: in a rehearsal, the gate also fails on the original
    commit."""
    tree: Sha = Sha("")
    """Tree that was tested."""
    causes: tuple[str, ...] = ()
    """If the check failed: relevant lines of its full output."""
    log: str = ""
    """File with the full output, relative to the run's directory."""
    tests: int | None = None
    """Number of passed tests, if the test runner reported it."""
    node: str = ""
    """Node that ran the check. Empty: the manager's machine."""
    review: bool = False
    """Whether this is a result of model reviews and not of a command. See `ReviewVoted`."""
    ran_tests: RanTests | None = Field(default=None, exclude=True, repr=False)
    """The runner's report, kept while results are compared with it."""

    @property
    def fine(self) -> bool:
        """Whether a landing may proceed: the check passed, is flaky or is excused."""
        return self.passed or self.flaky or bool(self.excused)


class SetupRun(FrozenModel):
    """A run of the setup command, which prepares worktrees."""

    commit: Sha
    """Commit that was checked out."""
    check: CheckRun
    """Command and result."""
    network: bool = False
    """Whether the command had network access."""


class Member(FrozenModel):
    """A candidate in a batch."""

    subtask: SubtaskId
    """Subtask of the candidate."""
    attempt: int
    """Number of the attempt."""
    commit: Sha
    """Commit of the candidate. After landing, the commit on the integration branch."""
    tested: bool = False
    """If it landed: whether the tree of this commit was tested, and not only a later tree that contains it."""
    tree: Sha = Sha("")
    """If it landed: tree of the commit. Empty if a crash lost the record."""


class Ejected(FrozenModel):
    """A candidate that was removed from the merge queue."""

    subtask: SubtaskId
    """Subtask of the candidate."""
    attempt: int
    """Number of the attempt."""
    failure: Failure
    """Cause of the removal."""


class RungTally(FrozenModel):
    """Results and cost of attempts with the same worker, model, effort and subtask size."""

    worker: str
    """Worker kind."""
    model: str
    """Model that was used."""
    effort: Effort | None
    """Reasoning effort of the model."""
    size: Size
    """Size of the subtasks."""
    landed: int = 0
    """Number of attempts that landed."""
    failed: dict[FailureKind, int] = Field(default={})
    """Number of other attempts, by class of failure. Failures that do not count against attempts are left out."""
    priced: int = 0
    """Number of these attempts with a known price."""
    dollars: float = 0.0
    """Total cost of the attempts with a known price."""
    timed: int = 0
    """Not written any more, so that old journals load: number of attempts with a known duration."""
    seconds: float = 0.0
    """Not written any more, so that old journals load: total duration of these attempts."""


class RungOption(FrozenModel):
    """A rung that was considered for the first attempt at a subtask."""

    model: str
    """Model of the rung."""
    effort: Effort | None
    """Reasoning effort of the model."""
    tried: int
    """Number of attempts with this rung at subtasks of this size."""
    landed: int
    """Number of these attempts that landed."""
    dollars: float | None
    """Average cost of an attempt. Null without attempts, or if the price of the model is unknown."""
    per_landed: float | None
    """Total cost divided by landed attempts. Null if none landed, or if the price is unknown."""
    lands: float | None = None
    """This field and the following ones are not written any more, so that old journals load."""
    low: float | None = None
    high: float | None = None
    least_per_landed: float | None = None
    most_per_landed: float | None = None


class RungChoice(FrozenModel):
    """The rung of its worker's ladder that an attempt uses, and the reason."""

    rung: int
    """Position on the ladder, from 0."""
    why: RungReason
    """`evidence`, `order`, `named`, `climbed` or `again`. Old journals also contain `explored` and `unpriced`."""
    options: tuple[RungOption, ...] = ()
    """All rungs of the ladder, if they were compared."""


class TimedFact(FrozenModel):
    """Base class of all facts."""

    at: float
    """Time of the fact, in seconds since 1970."""


# ---- estimate parts --------------------------------------------------------------------------------------------------
# Estimates of the cost and duration of future subtasks, and parts of forecasts in early journals.


class Spread(FrozenModel):
    """Median and range of some amounts."""

    median: float
    """Median amount."""
    low: float
    """Lowest amount."""
    high: float
    """Highest amount."""


class SubtaskEstimate(FrozenModel):
    """Cost and duration of comparable landed subtasks, including all their attempts."""

    worker: str
    """Worker kind of the subtasks."""
    size: Size
    """Size of the subtasks, based on the estimate in the plan."""
    model: str | None = None
    """Model that landed them. Null: a program did."""
    landed: int = 0
    """Number of landed subtasks behind the figures. 0: fewer than five, so there are no figures."""
    dollars: Spread | None = None
    """Cost in dollars. Null if the price of a model is unknown, and for programs."""
    seconds: Spread | None = None
    """Active duration in seconds. Null if fewer than five landed in runs without interruption."""


# ---- kept so that old journals load: nothing writes these any more --------------------------------------------------


class CallTally(FrozenModel):
    """Number, duration and cost of a planner's calls to one model."""

    model: str
    """Model that was called."""
    first: bool
    """Whether these are the first calls of their runs. A first call reads the repository and takes longer."""
    calls: int = 0
    """Number of calls."""
    seconds: float = 0.0
    """Total duration of the calls."""
    dollars: float | None = 0.0
    """Total cost. Null if a price is unknown."""


class Assumed(FrozenModel):
    """Assumptions of early versions about cost and duration."""

    ladders: dict[str, Ladder] = Field(default={})
    """A ladder for each worker that calls a model. Workers without rungs have a single model."""
    planner: tuple[CallTally, ...] = ()
    """One entry for first planner calls and one for later calls."""
    gate_s: float = Field(default=60.0, ge=0)
    """Assumed duration of the gate before its first run."""
    program_s: float = Field(default=60.0, ge=0)
    """Assumed duration of a worker that is a program, for a medium subtask without an estimate."""


class Expectation(FrozenModel):
    """An expected amount, with its uncertainty."""

    median: float
    """Half of all runs should need at most this amount."""
    p90: float
    """Nine of ten runs should need at most this amount."""


class Forecast(FrozenModel):
    """Expected cost and duration of a run, as predicted by early versions before work started."""

    dollars: Expectation | None
    """Cost of workers and planner. Null if no price is known."""
    planner: float = 0.0
    """Share of the planner in the median cost."""
    minutes: Expectation
    """Active duration with the run's workers, without time spent waiting for humans."""
    subtasks: int
    """Number of subtasks in the plan."""
    workers: int
    """Maximum number of concurrent agents."""
    attempts: int = 0
    """Number of earlier attempts behind the forecast. 0: only assumptions."""
    calls: int = 0
    """Number of earlier planner calls behind the forecast."""
    unpriced: int = 0
    """Number of subtasks with unknown cost, which are not included in the dollars."""
    areas: int = 0
    """Number of areas, which are not planned yet and not included."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction from a user to the workers of a subtask. Trusted like the brief."""

    text: str
    by: str
    at: float
    interrupt: bool = False
    """Whether the instruction stops the running command."""
