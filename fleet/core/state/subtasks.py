"""The subtasks of a run, and sets of them: closed, running, failed, waiting and others.

A rule that checked the status of every subtask would slow down as the run grows. The sets are updated with each change
instead (`history/subtask_sets.py`). `status.py` defines the same conditions for a single subtask, and a property test
compares the two.
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
# The history of one subtask and its attempts. All values are frozen, and only `history/` creates new ones.


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
    """Node that runs the attempt. Empty: the manager's machine."""
    before: tuple[CheckRun, ...] = ()
    """The results of its checks on its base."""
    commit: Sha | None = None
    worked: bool = False
    """Whether the worker ever started."""
    unchanged: bool = False
    """Whether the attempt finished without changing a file, so that its commit is its base."""
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
    """If it landed: whether the tree of its own commit was tested, and not only a later tree."""
    ended_at: float | None = None
    spend: Spend = Spend()
    turn: int = 0
    doing: str = ""
    said: str = ""
    """Last text of the model."""
    allowance: float | None = None
    """Budget of an attempt at an area, in dollars."""
    effort: Effort | None = None
    size: Size = "medium"
    choice: RungChoice | None = None
    """Rung of the worker's ladder, and the reason for it."""
    instructions: tuple[Instruction, ...] = ()
    """Instructions that the worker has read since it last started."""
    votes: tuple[Vote, ...] = ()
    """The reviews of its change."""
    batch: ReviewBatched | None = None
    """Pending batch of reviews for the change."""
    unbatched: bool = False
    """No batch is sent for it: there was one, or the service takes none."""


@dataclass(frozen=True)
class SubtaskState:
    """History of one subtask."""

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
    """Instructions from users. Every attempt reads all of them."""
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
    """Usage when a human last helped. The budget counts from there."""
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
        """Return whether the subtask is done without a commit."""
        return self.landed is not None and self.attempts[-1].unchanged

    @property
    def has_own_commit(self) -> bool:
        """Return whether the integration branch has a commit of this subtask."""
        return self.landed is not None and self.attempts[-1].worker != PLANNER and not self.unchanged

    @property
    def current(self) -> Attempt | None:
        """Return the running attempt."""
        last = self.last
        return last if last is not None and last.ended_at is None else None

    @property
    def closed(self) -> bool:
        """Return whether the subtask remains as it is unless a human intervenes."""
        return self.landed is not None or bool(self.parts) or self.dropped is not None or self.skipped


# ---- subtasks --------------------------------------------------------------------------------------------------------


Set = int
"""A set of subtasks: a bit for each, in the order in which they should start. `&`, `|` and `& ~` mean the same as for
other sets, an empty one is false, and a changed one is a copy of 1 kB for 10,000 subtasks."""


class Mark(IntEnum):
    """Conditions of a single subtask, independent of others."""

    CLOSED = 0
    DONE = 1
    """Landed or skipped on purpose, so that dependent subtasks may start."""
    FAILED = 2
    """Has an unsettled failure."""
    ASKED = 3
    """A question about it is open."""
    UNDERWAY = 4
    """An attempt has not ended."""
    RUNNING = 5
    """Counts against the limit of workers."""
    WORKING = 6
    """An agent works on it."""
    PLANNING = 7
    """Is an area whose planner is in charge."""
    DELAYED = 8
    """May not start before some time."""
    GONE = 9
    """Was split, skipped or dropped, and will not land."""


def marks_of(subtask: SubtaskState) -> tuple[bool, ...]:
    """Return the conditions in the order of `Mark`. Called twice per fact, so it reads each field once."""
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
    """Sets derived from one version of the plan."""

    specs: Mapping[SubtaskId, Subtask] = field(default_factory=dict)
    places: Mapping[SubtaskId, int] = field(default_factory=dict)
    """Position of each subtask in plan order."""
    bits: Mapping[SubtaskId, int] = field(default_factory=dict)
    """Bit of each subtask in a set."""
    by_bit: tuple[SubtaskId, ...] = ()
    """In the order in which they should start: the longest chain of others behind them first, so that the run ends
    soonest."""
    dependents: Mapping[SubtaskId, tuple[SubtaskId, ...]] = field(default_factory=dict)
    areas: Set = 0
    approved: Set = 0
    """Subtasks that have not changed since their approval."""
    scheduled: Set = 0
    """Subtasks with a start time in the plan."""
    labelled: Set = 0
    """Subtasks that require a machine with labels."""


def is_same(one: Subtask | None, other: Subtask | None) -> bool:
    """Return whether a subtask is unchanged. Checks identity first, which is quicker than comparing all fields."""
    return one is other or one == other


@dataclass(frozen=True, eq=False)
class Subtasks(Mapping[SubtaskId, SubtaskState]):
    """The state of each subtask in plan order. A change creates a new value that shares all other parts."""

    rows: Vector[SubtaskState] = field(default_factory=Vector)
    plan: PlannedSets = PlannedSets()
    marks: tuple[Set, ...] = (0,) * len(Mark)
    unmet: Set = 0
    """Subtasks with a dependency that is neither landed nor skipped."""
    made_by: Mapping[SubtaskId | None, Set] = field(default_factory=dict)
    """Subtasks created by each area's planner. None: the run's own planner."""
    outside: Set = 0
    """Subtasks whose area is neither planning nor closed, and so has no planner in charge."""

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
        """Return subtasks that wait or are ready: open, not running, and without a pending decision."""
        closed, failed, asked, underway = (
            self.marks[mark] for mark in (Mark.CLOSED, Mark.FAILED, Mark.ASKED, Mark.UNDERWAY)
        )
        return self.all & ~(closed | failed | asked | underway)

    @property
    def startable(self) -> Set:
        """Return waiting subtasks that only a time or an approval may hold back."""
        return self.waiting & ~(self.unmet | self.outside)

    @property
    def timed(self) -> Set:
        """Return subtasks that may not start before some time, by the plan or after a failure."""
        return self.plan.scheduled | self.marks[Mark.DELAYED]

    @property
    def undecided(self) -> Set:
        """Return subtasks that an approval or rejection may still concern."""
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
        """Return subtasks in areas whose planner is in charge."""
        return union(self.made_by.get(area, 0) for area in self.first(self.marks[Mark.PLANNING]))

    def ids(self, chosen: Set) -> list[SubtaskId]:
        """In the order in which they should start."""
        return list(self.first(chosen))

    def first(self, chosen: Set) -> Iterator[SubtaskId]:
        """Yield the subtasks of a set, one at a time."""
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
