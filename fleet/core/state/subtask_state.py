"""What happened to one subtask, and to each attempt at it. All values are frozen; only `history/` makes new ones."""

from dataclasses import dataclass

from fleet.core.base.ids import QuestionId, Sha, SubtaskId
from fleet.core.base.usage import Spend
from fleet.core.plans.plan import PLANNER, Effort
from fleet.core.plans.rungs import Size
from fleet.core.state.facts import CheckRun, Failure, Remedy, Report, ReviewBatched, RungChoice, Strategy, Vote


@dataclass(frozen=True, slots=True)
class Instruction:
    """What a person told those who work on a subtask. Their own words: trusted like the brief."""

    text: str
    by: str
    at: float
    interrupt: bool = False
    """Whether it stops the command that runs."""


@dataclass(frozen=True)
class Attempt:
    """One try at a subtask by one worker."""

    number: int
    worker: str
    model: str | None
    base: Sha
    strategy: Strategy
    guidance: str
    started_at: float
    working: bool = False
    node: str = ""
    """The node that works on it; empty: the manager's machine."""
    before: tuple[CheckRun, ...] = ()
    """The results of its checks on its base."""
    commit: Sha | None = None
    worked: bool = False
    """Its worker started, at some time."""
    unchanged: bool = False
    """It finished without changing a file: its commit is its base."""
    kept: bool = False
    """The commit is unfinished work: the attempt failed before it was done."""
    paths: tuple[str, ...] = ()
    report: Report | None = None
    verified: bool = False
    verified_at: float | None = None
    checks: tuple[CheckRun, ...] = ()
    failure: Failure | None = None
    landed: Sha | None = None
    tested: bool = False
    """If it landed: whether the tree of its own commit passed, not only that of a later one."""
    ended_at: float | None = None
    spend: Spend = Spend()
    turn: int = 0
    doing: str = ""
    said: str = ""
    """What its model said last."""
    allowance: float | None = None
    """What an attempt at an area may cost, in dollars."""
    effort: Effort | None = None
    size: Size = "medium"
    choice: RungChoice | None = None
    """Which rung of its worker's ladder it took, and why."""
    instructions: tuple[Instruction, ...] = ()
    """Those of its subtask that it has read since its worker last started."""
    votes: tuple[Vote, ...] = ()
    """The reviews of its change."""
    batch: ReviewBatched | None = None
    """The batch in which reviews of its change were asked for, until it is over."""
    unbatched: bool = False
    """No batch is sent for it: there was one, or the service takes none."""


@dataclass(frozen=True)
class SubtaskState:
    """What happened to one subtask."""

    id: SubtaskId
    parent: SubtaskId | None = None
    area: SubtaskId | None = None
    """The area whose planner created it."""
    depth: int = 0
    attempts: tuple[Attempt, ...] = ()
    failure: Failure | None = None
    """The last failure, until a new attempt or a decision of a planner or a person settles it."""
    remedy: Remedy | None = None
    """The remedy that policy chose for that failure."""
    counted: int = 0
    """Failures since a human last helped that used up an attempt."""
    retries: int = 0
    """Failures since then that did not."""
    instructions: tuple[Instruction, ...] = ()
    """What people told its workers; every attempt reads all of it."""
    not_before: float = 0.0
    strategy: Strategy = "first"
    guidance: str = ""
    landed: Sha | None = None
    parts: tuple[SubtaskId, ...] = ()
    dropped: str | None = None
    skipped: bool = False
    question: QuestionId | None = None
    """An open question about it."""
    forgiven: Spend = Spend()
    """Its usage when a human last helped: its budget counts from there."""
    forgiven_s: float = 0.0

    @property
    def spend(self) -> Spend:
        """The usage of all its attempts."""
        return sum((attempt.spend for attempt in self.attempts), Spend())

    @property
    def last(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None

    @property
    def unchanged(self) -> bool:
        """Whether it is done without a commit of its own."""
        return self.landed is not None and self.attempts[-1].unchanged

    @property
    def has_own_commit(self) -> bool:
        """Whether it is on the integration branch as a commit of its own."""
        return self.landed is not None and self.attempts[-1].worker != PLANNER and not self.unchanged

    @property
    def current(self) -> Attempt | None:
        """The attempt that is under way."""
        last = self.last
        return last if last is not None and last.ended_at is None else None

    @property
    def closed(self) -> bool:
        """Whether nothing more will happen to it unless a human intervenes."""
        return self.landed is not None or bool(self.parts) or self.dropped is not None or self.skipped
