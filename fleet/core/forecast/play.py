"""One play of a plan: its attempts, their failures, the planner's calls and the landing, in time, on so many workers.

A mechanism of a run in miniature: the longest chain of dependants starts first, failures climb or wait for the planner,
what passed is tested together and lands. All amounts are given; chance comes from `Draws`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from heapq import heappop, heappush

from fleet.core.forecast.draws import Draws, width_of

SPREAD = width_of(0.6)  # of what one attempt costs and takes
CALL_SPREAD = width_of(0.5)  # of what one call of the planner costs and takes


@dataclass(frozen=True, slots=True)
class Try:
    """An attempt at a subtask, as one play believes it to be."""

    lands: float
    """The share that lands."""
    dollars: float
    seconds: float
    climbs: bool = False
    """Whether the next attempt follows a failure at once, without the planner."""


@dataclass(frozen=True, slots=True)
class Network:
    """The subtasks of a plan by number. Smaller ones go first."""

    kinds: tuple[int, ...]
    """The kind of each."""
    needs: tuple[int, ...]
    """How many others have to land before each."""
    followers: tuple[tuple[int, ...], ...]
    """The ones that need each."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How a run works, as one play believes it to be."""

    workers: int
    slots: int
    """Merged trees that are tested at once."""
    gate_s: float
    quick_s: float
    """The tree of each commit is tested by itself as long as that takes at most this long."""
    has_planner: bool
    reports: bool
    """Whether the planner reads what landed: it made the plan."""
    settle_s: float
    call_s: float
    call_dollars: float


@dataclass(frozen=True, slots=True)
class Played:
    """What one play came to."""

    workers: float
    """Dollars of the workers."""
    planner: float
    seconds: float
    landed: int


class _Event(IntEnum):
    FAILED = 0
    PASSED = 1
    TESTED = 2
    ANSWERED = 3
    DUE = 4


def play(network: Network, kinds: Mapping[int, Sequence[Try]], rules: Rules, draws: Draws) -> Played:
    """`kinds` has the attempts at a subtask of each kind, one after the other, at most."""
    return _Play(network, kinds, rules, draws).result()


class _Play:
    def __init__(self, network: Network, kinds: Mapping[int, Sequence[Try]], rules: Rules, draws: Draws) -> None:
        self.network, self.rules, self.draws = network, rules, draws
        self.tries = [kinds[kind] for kind in network.kinds]
        self.missing = list(network.needs)
        self.ready = [number for number, needs in enumerate(network.needs) if not needs]
        self.tried = [0] * len(network.kinds)
        self.free = rules.workers
        self.events: list[tuple[float, _Event, int]] = []
        self.now = self.until = self.workers = self.planner = 0.0
        self.queue: list[int] = []
        self.batch: list[int] = []
        self.failed: list[int] = []
        self.read: list[int] = []
        self.is_called = False
        self.unread_since: float | None = None
        self.landed = 0

    def result(self) -> Played:
        self._start()
        while self.events:
            self.now, event, number = heappop(self.events)
            self._take(event, number)
            self._start()
        return Played(self.workers, self.planner, self.until, self.landed)

    def _start(self) -> None:
        while self.free and self.ready:
            number = heappop(self.ready)
            attempt = self.tries[number][self.tried[number]]
            self.tried[number] += 1
            self.free -= 1
            self.workers += attempt.dollars * self.draws.factor(SPREAD)
            passed = self.draws.share() < attempt.lands
            ends = self.now + attempt.seconds * self.draws.factor(SPREAD)
            heappush(self.events, (ends, _Event.PASSED if passed else _Event.FAILED, number))

    def _take(self, event: _Event, number: int) -> None:
        if event is not _Event.DUE:
            self.until = self.now
        match event:
            case _Event.FAILED:
                self.free += 1
                self._fail(number)
            case _Event.PASSED:
                self.free += 1
                self.queue.append(number)
                self._test()
            case _Event.TESTED:
                self._land()
                self._test()
            case _Event.ANSWERED:
                self.is_called = False
                for each in self.read:
                    heappush(self.ready, each)
                self._call()
            case _Event.DUE:
                self._call()

    def _fail(self, number: int) -> None:
        tried, tries = self.tried[number], self.tries[number]
        if tried >= len(tries):
            return  # a person is asked; what needs it never starts
        if tries[tried - 1].climbs:
            heappush(self.ready, number)
        elif self.rules.has_planner:
            self.failed.append(number)
            self._call()

    def _test(self) -> None:
        """Test all that waits: the tree of each commit while that is quick, else the last one."""
        if self.batch or not self.queue:
            return
        self.batch, self.queue = self.queue, []
        each = self.rules.gate_s * len(self.batch)
        seconds = each / self.rules.slots if each <= self.rules.quick_s * self.rules.slots else self.rules.gate_s
        heappush(self.events, (self.now + max(seconds, self.rules.gate_s), _Event.TESTED, 0))

    def _land(self) -> None:
        for number in self.batch:
            self.landed += 1
            for follower in self.network.followers[number]:
                self.missing[follower] -= 1
                if not self.missing[follower]:
                    heappush(self.ready, follower)
        self.batch = []
        if self.rules.has_planner and self.rules.reports and self.unread_since is None:
            self.unread_since = self.now
            heappush(self.events, (self.now + self.rules.settle_s, _Event.DUE, 0))

    def _call(self) -> None:
        """Call the planner if a failure waits for it, or what landed does for long enough."""
        settled = self.unread_since is not None and self.now >= self.unread_since + self.rules.settle_s
        if self.is_called or not (self.failed or settled):
            return
        self.is_called, self.unread_since = True, None
        self.read, self.failed = self.failed, []
        self.planner += self.rules.call_dollars * self.draws.factor(CALL_SPREAD)
        ends = self.now + self.rules.call_s * self.draws.factor(CALL_SPREAD)
        heappush(self.events, (ends, _Event.ANSWERED, 0))
