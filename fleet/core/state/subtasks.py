"""The subtasks of a run, and sets of those that are closed, under way, failed, waiting for another and so on.

A rule that asked every subtask for its status would cost more the longer the run is, at every step. The sets are
changed with the subtasks instead (`history/subtask_sets.py`). `status.py` defines the same for one subtask at a time;
a property test compares the two.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from fleet.core.base.ids import QuestionId, Sha, SubtaskId
from fleet.core.base.usage import Spend
from fleet.core.base.vector import Vector
from fleet.core.facts.fact_parts import Instruction
from fleet.core.facts.facts import CheckRun, Failure, Remedy, Report, ReviewBatched, RungChoice, Strategy, Vote
from fleet.core.plans.limits import Size
from fleet.core.plans.plan import PLANNER, Effort, Subtask

# ---- subtask state ---------------------------------------------------------------------------------------------------
# What happened to one subtask, and to each attempt at it. All values are frozen; only `history/` makes new ones.


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
        spent = Spend()
        for attempt in self.attempts:
            spent += attempt.spend
        return spent

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


# ---- subtasks --------------------------------------------------------------------------------------------------------


Set = int
"""A set of subtasks: a bit for each, in the order in which they should start. `&`, `|` and `& ~` mean the same as for
other sets, an empty one is false, and a changed one is a copy of 1 kB for 10,000 subtasks."""


class Mark(IntEnum):
    """What is true of a subtask by itself, whatever others do."""

    CLOSED = 0
    DONE = 1
    """It landed or was skipped on purpose: what depends on it may start."""
    FAILED = 2
    """It has an unsettled failure."""
    ASKED = 3
    """A question about it is open."""
    UNDERWAY = 4
    """An attempt has not ended."""
    RUNNING = 5
    """It counts against the number of workers."""
    WORKING = 6
    """An agent works on it."""
    PLANNING = 7
    """It is an area whose planner is in charge."""
    DELAYED = 8
    """It may not start before some time."""
    GONE = 9
    """It was split, skipped or dropped: it is not to land."""


def marks_of(subtask: SubtaskState) -> tuple[bool, ...]:
    """In the order of `Mark`. Asked twice for every fact, so it reads each field once."""
    attempts, done = subtask.attempts, subtask.landed is not None or subtask.skipped
    gone = bool(subtask.parts) or subtask.skipped or subtask.dropped is not None
    closed = done or gone
    failed, asked, delayed = subtask.failure is not None, subtask.question is not None, subtask.not_before > 0.0
    if not attempts or (last := attempts[-1]).ended_at is not None:
        return (closed, done, failed, asked, False, False, False, False, delayed, gone)
    open_, area = last.commit is None, last.worker == PLANNER
    running = open_ and not area
    working, planning = running and last.working, open_ and area
    return (closed, done, failed, asked, True, running, working, planning, delayed, gone)


@dataclass(frozen=True, slots=True)
class PlannedSets:
    """What follows from one version of the plan alone."""

    specs: Mapping[SubtaskId, Subtask] = field(default_factory=dict)
    places: Mapping[SubtaskId, int] = field(default_factory=dict)
    """Where each subtask is in plan order."""
    bits: Mapping[SubtaskId, int] = field(default_factory=dict)
    """Its bit in a set."""
    by_bit: tuple[SubtaskId, ...] = ()
    """In the order in which they should start: the longest chain of others behind them first, so that the run ends
    soonest."""
    dependents: Mapping[SubtaskId, tuple[SubtaskId, ...]] = field(default_factory=dict)
    areas: Set = 0
    approved: Set = 0
    """Those that are as they were approved."""
    scheduled: Set = 0
    """Those with a time before which the plan does not start them."""
    labelled: Set = 0
    """Those that ask for a machine with labels."""


def is_same(one: Subtask | None, other: Subtask | None) -> bool:
    """Whether a subtask is as it was; usually it is identical, which is quicker than to compare all fields."""
    return one is other or one == other


@dataclass(frozen=True, eq=False)
class Subtasks(Mapping[SubtaskId, SubtaskState]):
    """The state of each subtask, in plan order. Changes give a new one that shares everything else."""

    rows: Vector[SubtaskState] = field(default_factory=Vector)
    plan: PlannedSets = PlannedSets()
    marks: tuple[Set, ...] = (0,) * len(Mark)
    unmet: Set = 0
    """Those with a dependency that is neither landed nor skipped."""
    made_by: Mapping[SubtaskId | None, Set] = field(default_factory=dict)
    """The subtasks that each area's planner made; None is the planner of the run."""
    outside: Set = 0
    """Those whose area is neither planning nor closed, so that no planner would be in charge of them."""

    # ---- as a mapping

    def __getitem__(self, id_: SubtaskId) -> SubtaskState:
        return self.rows.at(self.plan.places[id_])

    def __iter__(self) -> Iterator[SubtaskId]:
        return iter(self.plan.places)

    def __len__(self) -> int:
        return len(self.rows)

    def changed_since(self, before: "Subtasks") -> Iterator[SubtaskState]:
        """The subtasks that are not as in an earlier version of the same run."""
        return (self.rows[place] for place in self.rows.changed_since(before.rows))

    # ---- sets

    def marked(self, mark: Mark) -> Set:
        return self.marks[mark]

    @property
    def all(self) -> Set:
        return (1 << len(self.rows)) - 1

    @property
    def open(self) -> Set:
        return self.all & ~self.marks[Mark.CLOSED]

    @property
    def waiting(self) -> Set:
        """Those that wait or are ready: open, not under way, and without a decision to wait for."""
        closed, failed, asked, underway = (
            self.marks[mark] for mark in (Mark.CLOSED, Mark.FAILED, Mark.ASKED, Mark.UNDERWAY)
        )
        return self.all & ~(closed | failed | asked | underway)

    @property
    def startable(self) -> Set:
        """Those of them that only a time or an approval may hold back."""
        return self.waiting & ~(self.unmet | self.outside)

    @property
    def timed(self) -> Set:
        """Those that may not start before some time, by the plan or after a failure."""
        return self.plan.scheduled | self.marks[Mark.DELAYED]

    @property
    def undecided(self) -> Set:
        """Those that a verdict on the plan may still be about."""
        return self.open & ~self.marks[Mark.UNDERWAY]

    @property
    def approved(self) -> Set:
        return self.plan.approved

    @property
    def areas(self) -> Set:
        return self.plan.areas

    def members(self, area: SubtaskId | None) -> Set:
        """The subtasks that an area's planner made, or the planner of the run."""
        return self.made_by.get(area, 0)

    @property
    def in_active_areas(self) -> Set:
        """Those of the areas whose planner is in charge."""
        return union(self.made_by.get(area, 0) for area in self.first(self.marks[Mark.PLANNING]))

    def ids(self, chosen: Set) -> list[SubtaskId]:
        """In the order in which they should start."""
        return list(self.first(chosen))

    def first(self, chosen: Set) -> Iterator[SubtaskId]:
        """The same, one at a time."""
        by_bit = self.plan.by_bit
        while chosen:
            lowest = chosen & -chosen
            yield by_bit[lowest.bit_length() - 1]
            chosen ^= lowest

    def in_plan_order(self, chosen: Set) -> list[SubtaskId]:
        return sorted(self.first(chosen), key=self.plan.places.__getitem__)

    def set_of(self, ids: Collection[SubtaskId]) -> Set:
        return sum(1 << self.plan.bits[id_] for id_ in set(ids))


def union(sets: Iterable[Set]) -> Set:
    together = 0
    for one in sets:
        together |= one
    return together
