"""The throughput of the landing policy in simulation, compared with the upper bound for nested tests.

The queue is always full, every test takes the same time, and a candidate is faulty with a fixed probability and breaks
every tree that contains it. The policy does not know these parameters: it is the product's
(`fleet.core.policy.landing.next_sizes`), with the product's history of the queue (`fleet.core.history.merge_queue`).
The bound: finding the first faulty candidate takes H(p) bits per candidate, and c nested tests of duration T yield at
most log2(c + 1) bits, so no policy lands more than (1 - p) log2(c + 1) / (T H(p)).
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from heapq import heappop, heappush
from math import log2

from anyio import to_thread

from bench.side_by_side import Extent
from fleet.core.base.ids import SubtaskId
from fleet.core.base.vector import Vector
from fleet.core.facts.facts import BatchFormed, BatchTested, Member
from fleet.core.history import merge_queue
from fleet.core.policy.landing import next_sizes
from fleet.core.state.state import Landing
from scripts.frame import Figure

TEST_S = 10.0
QUEUE = 400  # candidates that wait at any time
RATES = (0.01, 0.05, 0.10)
WANTED = 0.85
Policy = Callable[[Landing, int], tuple[int, ...]]


async def policy_figures(extent: Extent) -> list[Figure]:
    """Landings per simulated hour of each policy, divided by the bound."""
    return await to_thread.run_sync(_figures, extent.simulated_hours)


def _figures(hours: float) -> list[Figure]:
    rows: tuple[tuple[str, Policy, float, int, float | None], ...] = (
        ("one at a time", serial, 0.0, 0, None),
        ("fleet", adaptive, 0.0, 0, WANTED),
        ("fleet, tests take +-50 %", adaptive, 0.5, 0, None),
        ("fleet, suspects tested again", adaptive, 0.0, 1, None),
    )
    figures = []
    for name, policy, jitter, reruns, wanted in rows:
        for rate in RATES:
            hourly = FullQueue(policy, rate, jitter=jitter, reruns=reruns).landed_per_hour(hours)
            measure, note = f"policy of bound, {name}", f"{hourly:,.0f} per hour"
            share = hourly / bound(rate, 2)
            figures.append(Figure(measure, f"{rate:.0%} guilty", share, wanted=wanted, at_least=True, note=note))
    return figures


def bound(rate: float, slots: int) -> float:
    """The most landings per hour."""
    entropy = -rate * log2(rate) - (1 - rate) * log2(1 - rate)
    return 3600 * (1 - rate) * log2(slots + 1) / (TEST_S * entropy)


def adaptive(landing: Landing, slots: int) -> tuple[int, ...]:
    return next_sizes(landing, slots=slots, most=256)


def serial(landing: Landing, slots: int) -> tuple[int, ...]:
    """One candidate at a time, however many slots are free."""
    return (1,) if slots and not landing.prefixes else ()


@cache
def candidate(id_: str) -> Member:
    return Member(subtask=id_, attempt=1, commit=id_)


@dataclass
class FullQueue:
    """A queue that never runs empty, and the tests of its batches."""

    policy: Policy
    rate: float
    slots: int = 2
    jitter: float = 0.0
    reruns: int = 0
    seed: int = 1
    now: float = 0.0
    landing: Landing = field(default_factory=Landing)
    landed: int = 0
    sent_back: int = 0
    tests: int = 0

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)  # noqa: S311 - a simulation
        self.running: list[tuple[float, int, int]] = []
        self.guilty: set[SubtaskId] = set()
        self.created = 0

    def landed_per_hour(self, hours: float) -> float:
        while self.now < hours * 3600:
            self._fill()
            self._start()
            self.now, _, number = heappop(self.running)
            self._finish(number)
        return self.landed / hours

    def _fill(self) -> None:
        new = list[SubtaskId]()
        for _ in range(QUEUE - len(self.landing.queue)):
            self.created += 1
            new.append(SubtaskId(f"s{self.created}"))
            if self.chance.random() < self.rate:
                self.guilty.add(new[-1])
        # The policy never reads `tested`, which would be copied with every result.
        self.landing = replace(self.landing, queue=(*self.landing.queue, *new), tested=Vector())

    def _start(self) -> None:
        for size in self.policy(self.landing, self.slots):
            self._open([candidate(id_) for id_ in self.landing.queue[:size]])

    def _open(self, members: list[Member], *, alone: bool = False) -> None:
        number = self.landing.batches + 1
        fact = BatchFormed(at=self.now, number=number, members=tuple(members), alone=alone)
        self.landing = merge_queue.form_batch(self.landing, fact)
        duration = TEST_S * (1 + self.jitter * (2 * self.chance.random() - 1))
        self.tests += 1
        heappush(self.running, (self.now + duration, self.tests, number))

    def _finish(self, number: int) -> None:
        batch = self.landing.open_batch(number)
        if batch is None:  # the result of another batch has made it superfluous
            return
        red = any(member.subtask in self.guilty for member in batch.members)
        if batch.alone:
            assert red
            ids = [member.subtask for member in batch.members]
            self.landing = merge_queue.remove(self.landing, ids, guilty=ids)
            self.sent_back += 1
            return
        landed = () if red else batch.members
        self.landed += len(landed)
        result = BatchTested(at=self.now, number=number, tip="", landed=landed, red=red)
        self.landing = merge_queue.close_batch(self.landing, result)
        if len(self.landing.suspects) == 1:
            self._convict(self.landing.suspects[0])

    def _convict(self, suspect: SubtaskId) -> None:
        assert suspect in self.guilty
        if self.reruns > 0:
            self._open([candidate(suspect)], alone=True)
        else:
            self.landing = merge_queue.remove(self.landing, [suspect], guilty=[suspect])
            self.sent_back += 1
