"""What the landing policy lands an hour, in simulation, against the most that nested tests can.

Run it: python -m tests.benchmarks.landing_policy. The queue is always full; a test takes the same time whatever it
tests; a candidate is guilty with a fixed probability and turns every tree red that holds it. The policy knows none of
that: it is the product's own (`fleet.core.landing.next_sizes`), fed by the product's own history of the queue
(`fleet.core.queue`). The bound: where the first guilty one stands is worth H(p) bits for each candidate, and c nested
tests that take T tell at most log2(c + 1) bits, so no policy lands more than (1 - p) log2(c + 1) / (T H(p)).
"""

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from math import log2

from fleet.core import queue
from fleet.core.facts import BatchFormed, BatchTested, Member
from fleet.core.landing import next_sizes
from fleet.core.state import Landing
from tests.benchmarks.side_by_side import HEAD, Figure, say

TEST_S = 10.0
FULL = 400  # candidates that wait at any time
RATES = (0.01, 0.05, 0.10)
WANTED = 0.85
Policy = Callable[[Landing, int], tuple[int, ...]]


def bound(rate: float, slots: int) -> float:
    """Landed an hour, at most."""
    entropy = -rate * log2(rate) - (1 - rate) * log2(1 - rate)
    return 3600 * (1 - rate) * log2(slots + 1) / (TEST_S * entropy)


def adaptive(landing: Landing, slots: int) -> tuple[int, ...]:
    return next_sizes(landing, slots=slots, most=256)


def serial(landing: Landing, slots: int) -> tuple[int, ...]:
    """One candidate at a time, whatever there is to test on."""
    return (1,) if slots and not landing.prefixes else ()


@dataclass
class Saturated:
    """A queue that never runs dry, and the tests on it."""

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
        self.bad: set[str] = set()
        self.made = 0

    def landed_an_hour(self, hours: float) -> float:
        while self.now < hours * 3600:
            self._fill()
            self._start()
            self.now, _, number = heappop(self.running)
            self._finish(number)
        return self.landed / hours

    def _fill(self) -> None:
        fresh = []
        for _ in range(FULL - len(self.landing.queue)):
            self.made += 1
            fresh.append(f"s{self.made}")
            if self.chance.random() < self.rate:
                self.bad.add(f"s{self.made}")
        self.landing = replace(self.landing, queue=(*self.landing.queue, *fresh))

    def _start(self) -> None:
        for size in self.policy(self.landing, self.slots):
            self._open([Member(subtask=id_, attempt=1, commit=id_) for id_ in self.landing.queue[:size]])

    def _open(self, members: list[Member], *, alone: bool = False) -> None:
        number = self.landing.batches + 1
        fact = BatchFormed(at=self.now, number=number, members=tuple(members), alone=alone)
        self.landing = queue.formed(self.landing, fact)
        takes = TEST_S * (1 + self.jitter * (2 * self.chance.random() - 1))
        self.tests += 1
        heappush(self.running, (self.now + takes, self.tests, number))

    def _finish(self, number: int) -> None:
        probe = self.landing.probe(number)
        if probe is None:  # another one has answered it
            return
        red = any(member.subtask in self.bad for member in probe.members)
        if probe.alone:
            assert red
            ids = [member.subtask for member in probe.members]
            self.landing = queue.without(self.landing, ids, guilty=ids)
            self.sent_back += 1
            return
        landed = () if red else probe.members
        self.landed += len(landed)
        result = BatchTested(at=self.now, number=number, tip="", landed=landed, red=red)
        self.landing = queue.tested(self.landing, result)
        if len(self.landing.suspects) == 1:
            self._convict(self.landing.suspects[0])

    def _convict(self, guilty: str) -> None:
        assert guilty in self.bad
        if self.landing.reds <= self.reruns:
            self._open([Member(subtask=guilty, attempt=1, commit=guilty)], alone=True)
        else:
            self.landing = queue.without(self.landing, [guilty], guilty=[guilty])
            self.sent_back += 1


def policy_figures(hours: float) -> list[Figure]:
    """What each policy lands in so many simulated hours, over the bound."""
    rows: tuple[tuple[str, Policy, float, int, float | None], ...] = (
        ("one at a time", serial, 0.0, 0, None),
        ("fleet", adaptive, 0.0, 0, WANTED),
        ("fleet, tests take +-50 %", adaptive, 0.5, 0, None),
        ("fleet, suspects tested again", adaptive, 0.0, 1, None),
    )
    found = []
    for name, policy, jitter, reruns, wanted in rows:
        for rate in RATES:
            hourly = Saturated(policy, rate, jitter=jitter, reruns=reruns).landed_an_hour(hours)
            measure, note = f"policy of bound, {name}", f"{hourly:,.0f} an hour"
            share = hourly / bound(rate, 2)
            found.append(Figure(measure, f"{rate:.0%} guilty", share, wanted=wanted, at_least=True, note=note))
    return found


if __name__ == "__main__":
    say(HEAD, *policy_figures(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0))
