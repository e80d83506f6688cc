"""Checks that the merge queue keeps up with its workers, in a discrete event simulation of hours of a run.

Decisions are the product's (`decide`, `evolve`), and so is the content of a batch: each tree while there is time,
otherwise the last one. The checks of attempts and batches share two slots, as in `worktrees/base/turns.py`. Work and
checks have fixed durations, and one candidate in twenty breaks each tree that contains its first attempt.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random
from statistics import fmean

from anyio import to_thread

from bench.side_by_side import Extent
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.core.policy.effects import CallPlanner, CheckBase, Command, Publish, RunAttempt, TestBatch, VerifyAttempt
from fleet.core.policy.landing import every_tree, send_back
from scripts.frame import Figure
from tests.fleet.core.story import Story, plan_of

GATE, GATE_S, CHECK_S = "make check", 10.0, 2.0
AN_HOUR, WORKERS, SLOTS = 200, 20, 2
RED = 0.05
AT_ONCE = 8  # trees of a batch that get ready at once
GROWTH, WAIT_MINUTES, AT_WORK = 2.0, 10.0, 0.5
EAGER = 100  # workers whose work takes a second
Then = Callable[[], None]


async def load_figures(extent: Extent) -> list[Figure]:
    """Return the length of the queue at a steady load, and the throughput with a hundred quick workers."""
    return await to_thread.run_sync(_figures, extent.simulated_hours)


def _figures(simulated_hours: float) -> list[Figure]:
    hours = max(3, round(simulated_hours / 10))
    steady = LandingLoad(WORKERS, WORKERS * 3600 / AN_HOUR, AN_HOUR * hours)
    steady.run()
    where, lengths = f"{AN_HOUR} an hour", steady.hourly_lengths()
    text = "queue by the hour: " + ", ".join(f"{length:.1f}" for length in lengths)
    growth = lengths[-2] - lengths[1]  # the first hour fills the queue, and in the last one less comes in
    eager = LandingLoad(EAGER, 1.0, 10 * EAGER)
    eager.run()
    note = f"the queue held {max(length for _, length in eager.lengths)} at most"
    return [
        Figure(f"landing load, gate of {GATE_S:.0f} s: growth of the queue", where, growth, wanted=GROWTH, note=text),
        Figure("landing load: longest wait to land, minutes", where, steady.longest_wait / 60, wanted=WAIT_MINUTES),
        Figure(
            "landing load: landed while attempts run, share",
            f"{EAGER} workers",
            eager.landed_at_work / (10 * EAGER),
            wanted=AT_WORK,
            at_least=True,
            note=note,
        ),
    ]


@dataclass
class Slots:
    """Slots for checks. Checks that finished work waits for go first."""

    free: int
    waiting: tuple[deque[Then], deque[Then]] = field(default_factory=lambda: (deque(), deque()))

    def take(self, begin: Then, *, lands: bool) -> None:
        self.waiting[not lands].append(begin)
        self._begin()

    def give_back(self) -> None:
        self.free += 1
        self._begin()

    def _begin(self) -> None:
        while self.free and (queue := self.waiting[0] or self.waiting[1]):
            self.free -= 1
            queue.popleft()()


class LandingLoad:
    """One simulated run with a number of subtasks, their duration, and a number of workers."""

    def __init__(self, workers: int, work_s: float, subtasks: int, seed: int = 1) -> None:
        names = [f"s{number}" for number in range(subtasks)]
        policy = Policy(workers=workers, slots=SLOTS, check_base=True, backoff_first_s=0.1, settle_s=0)
        plan = plan_of(*names, failure_action="retry")
        self._chance = Random(seed)  # noqa: S311 - a simulation
        self._guilty = {name for name in names if self._chance.random() < RED}
        self._work_s = work_s
        self.story = Story(policy, plan)
        self._slots = Slots(SLOTS)
        self._events: list[tuple[float, int, Then]] = []
        self._numbers = count()
        self._begun: set[Command] = set()
        self._verified_at: dict[str, float] = {}
        self.lengths: list[tuple[float, int]] = []
        self.longest_wait = 0.0
        self.landed_at_work = 0

    def run(self) -> None:
        self._look()
        while not self.story.state.ended:
            if self._events:
                self.story.now, _, then = heappop(self._events)
                then()
            else:
                self.story.time_passes_to_the_next_wake()
            self._look()

    def hourly_lengths(self) -> list[float]:
        """The length of the queue in each hour, at each event."""
        hours = range(int(self.lengths[-1][0] // 3600) + 1)
        return [fmean([length for at, length in self.lengths if at // 3600 == hour] or [0]) for hour in hours]

    def _later(self, seconds: float, then: Then) -> None:
        heappush(self._events, (self.story.now + seconds, next(self._numbers), then))

    def _look(self) -> None:
        """Begin what should be running and is not."""
        while new := [command for command in self.story.effects() if command not in self._begun]:
            for command in new:
                self._begun.add(command)
                self._begin(command)
        self.lengths.append((self.story.now, len(self.story.state.landing.queue)))

    def _begin(self, command: Command) -> None:
        match command:
            case CheckBase():
                self.story.happens(f.BaseChecked(at=self.story.now, base=command.base, checks=(check(GATE, GATE_S),)))
            case RunAttempt():
                self._check(CHECK_S, partial(self._work, command), lands=False)
            case VerifyAttempt():
                self._check(CHECK_S, partial(self._verified, command), lands=False)
            case TestBatch():
                self._test(command)
            case Publish():
                self.story.happens(f.Published(at=self.story.now, tip=command.tip))
            case CallPlanner():
                raise AssertionError("the plan is given, and nothing is for a planner")

    def _check(self, seconds: float, then: Then, *, lands: bool) -> None:
        def end() -> None:
            self._slots.give_back()
            then()

        self._slots.take(lambda: self._later(seconds, end), lands=lands)

    # ---- attempts

    def _work(self, command: RunAttempt) -> None:
        self._later(self._work_s * (0.5 + self._chance.random()), partial(self._committed, command))

    def _committed(self, command: RunAttempt) -> None:
        id_, number = command.subtask, command.number
        report = f.Report(status="done", summary="did it")
        self.story.happens(
            f.AttemptCommitted(
                at=self.story.now, subtask=id_, number=number, commit=f"{id_}-{number}", paths=(id_,), report=report
            )
        )

    def _verified(self, command: VerifyAttempt) -> None:
        own = (check(f"test {command.subtask}", CHECK_S),)
        self._verified_at[command.subtask] = self.story.now
        self.story.happens(
            f.AttemptVerified(at=self.story.now, subtask=command.subtask, number=command.number, checks=own)
        )

    # ---- batches

    def _test(self, command: TestBatch) -> None:
        state = self.story.state
        batch = state.landing.open_batch(command.number)
        assert batch is not None
        each = not batch.alone and every_tree(state, [member.subtask for member in batch.members])
        trees = len(batch.members) if each else 1
        left, ready = trees, 0

        def tested() -> None:
            nonlocal left
            left -= 1
            get_ready()
            if left == 0:
                self._tested(command.number, each=each)

        def get_ready() -> None:
            nonlocal ready
            while ready < trees and ready - (trees - left) < AT_ONCE:
                ready += 1
                last = ready == trees
                checks = len(batch.members) if last else 1
                self._check(GATE_S + CHECK_S * checks, tested, lands=True)

        get_ready()

    def _tested(self, number: int, *, each: bool) -> None:
        """Return the facts for a tested batch: all commits before the first failure land."""
        state, now = self.story.state, self.story.now
        batch = state.landing.open_batch(number)
        if batch is None:  # the result of another batch has answered for it
            return
        red = [member.attempt == 1 and member.subtask in self._guilty for member in batch.members]
        checks = (check(GATE, GATE_S, passed=not any(red)),)
        if batch.alone:
            back = (send_back(state, batch.members[0].subtask, checks, now),) if any(red) else ()
            self.story.happens(*back, f.BatchTested(at=now, number=number, tip=state.tip, red=any(red), checks=checks))
            return
        green = red.index(True) if any(red) else len(red)
        landed = batch.members[:green] if each or not any(red) else ()
        suspects = (batch.members[green].subtask,) if any(red) and each else ()
        for member in landed:
            self.longest_wait = max(self.longest_wait, now - self._verified_at[member.subtask])
        if state.subtasks.waiting:
            self.landed_at_work += len(landed)
        tip = f"tip-{number}" if landed else state.tip
        result = f.BatchTested(
            at=now, number=number, tip=tip, landed=landed, red=any(red), suspects=suspects, checks=checks
        )
        self.story.happens(result)


def check(command: str, seconds: float, *, passed: bool = True) -> f.CheckRun:
    return f.CheckRun(criterion=command, command=command, passed=passed, exit_code=0 if passed else 1, seconds=seconds)
