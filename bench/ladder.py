"""What landed subtasks cost with a ladder by evidence, compared with always the dearest and always the cheapest rung.

A pretended population: each subtask has a size and a difficulty of its own, and a rung lands it with the share given
below for that size, harder ones less often each time. All that decides is the product's own (`decide`, `evolve`): the
rung, the climb after a failure, when the planner is called. Attempts and planner calls take the time and cost that are
given; the core knows nothing of these figures beyond what its facts say. What a run leaves to a person is then done on
the dearest rung, so that all strategies land as much.
"""

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import exp, log

from anyio import to_thread

from agents.rung_priors import assumed_rung
from bench.side_by_side import SMALL, Extent
from fleet.core.base.usage import Usage
from fleet.core.history.evolve import evolve
from fleet.core.plans.limits import Policy
from fleet.core.plans.plan import Criterion, Estimate, Plan, Subtask
from fleet.core.plans.revision import Retry, Revision
from fleet.core.plans.rungs import Ladder, Size, parse_rung
from fleet.core.policy.decide import decide
from fleet.core.policy.effects import CallPlanner, CheckBase, Command, Publish, RunAttempt, VerifyAttempt, effects
from fleet.core.state import facts as f
from fleet.core.state.status import undecided_failures
from scripts.frame import Figure

SUBTASKS, WORKERS = 500, 16
SIZES: Mapping[Size, float] = {"small": 0.3, "medium": 0.5, "large": 0.2}
LINES: Mapping[Size, int] = {"small": 20, "medium": 100, "large": 400}
LANDS: Mapping[str, Mapping[Size, float]] = {
    "claude-haiku-5-5 medium": {"small": 0.70, "medium": 0.40, "large": 0.10},
    "claude-opus-5-5 low": {"small": 0.94, "medium": 0.86, "large": 0.70},
    "claude-opus-5-5 high": {"small": 0.98, "medium": 0.95, "large": 0.88},
}
"""The share of first attempts that land. For the largest model and medium subtasks these are the published figures."""
COSTS: Mapping[str, float] = {
    "claude-haiku-5-5 medium": 0.006,
    "claude-opus-5-5 low": 0.13,
    "claude-opus-5-5 high": 0.29,
}
"""Dollars of an attempt at a medium subtask."""
FACTOR: Mapping[Size, float] = {"small": 0.5, "medium": 1.0, "large": 2.5}
HARDNESS = 2.4  # the spread of difficulty, in log-odds, with which low effort and then high solve the published 97 %
PLANNER, PLANNER_S = 0.05, 30.0  # dollars: 20,000 tokens from the cache, 5,000 written to it, an answer of 1,000
ATTEMPT_S: Mapping[Size, float] = {"small": 120.0, "medium": 240.0, "large": 600.0}
LEAST = 0.1  # what a person makes of the hardest subtasks
DEAREST, CHEAPEST = 0.65, 0.95


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended."""

    landed: int
    dollars: float
    left: float
    """What it cost to land the rest on the dearest rung."""
    firsts: Mapping[str, int]
    """How many subtasks began on each rung."""


async def ladder_figures(extent: Extent) -> list[Figure]:
    return await to_thread.run_sync(_figures, 3 if extent.simulated_hours > SMALL.simulated_hours else 1)


def _figures(runs: int) -> list[Figure]:
    three, two = tuple(LANDS), tuple(LANDS)[1:]
    figures = []
    for label, rungs, dearest, cheapest in (("three rungs", three, DEAREST, CHEAPEST), ("two rungs", two, None, None)):
        ladder, dear, cheap = (sum_of(each, runs) for each in (rungs, rungs[-1:], rungs[:1]))
        for name, other, wanted in (("dearest", dear, dearest), ("cheapest", cheap, cheapest)):
            share = (ladder.dollars + ladder.left) / (other.dollars + other.left)
            note = f"{ladder.landed} and {other.landed} of {runs * SUBTASKS} without a person"
            figures.append(Figure(f"dollars, ladder of always the {name}", label, share, wanted=wanted, note=note))
    return figures


def sum_of(rungs: tuple[str, ...], runs: int, subtasks: int = SUBTASKS) -> Result:
    """The results of some runs together."""
    results = [Population(rungs, seed=seed, subtasks=subtasks).play() for seed in range(runs)]
    firsts: Counter[str] = Counter()
    for each in results:
        firsts.update(each.firsts)
    landed, dollars, left = (sum(getattr(each, name) for each in results) for name in ("landed", "dollars", "left"))
    return Result(landed, dollars, left, firsts)


@dataclass
class Population:
    """One run over all subtasks."""

    rungs: tuple[str, ...]
    seed: int = 0
    subtasks: int = SUBTASKS
    now: float = 0.0
    facts: list[f.Fact] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)  # noqa: S311 - a simulation
        self.sizes = self.chance.choices(list(SIZES), weights=list(SIZES.values()), k=self.subtasks)
        self.hardness = [self.chance.gauss(0.0, HARDNESS) for _ in range(self.subtasks)]
        ladder = Ladder(rungs=tuple(assumed_rung(*parse_rung(rung), {}) for rung in self.rungs))
        policy = Policy(workers=WORKERS, rungs={"coder": ladder})
        plan = Plan(goal="500 subtasks", subtasks=tuple(map(self._subtask, range(self.subtasks))))
        self.state = evolve(None, f.RunStarted(at=0.0, run=f"r{self.seed}", plan=plan, policy=policy, **_WHERE))
        self.record(f.EngineStarted(at=0.0, epoch=1, pid=1, host="here", version="1"))
        self.begun: set[Command] = set()
        self.ends: list[tuple[float, int, Command]] = []
        self.planner_calls = 0

    def _subtask(self, number: int) -> Subtask:
        check = Criterion(criterion="it works", run="make test")
        estimate = Estimate(lines=LINES[self.sizes[number]])
        return Subtask(id=f"s{number}", title="One", goal="One.", acceptance=(check,), estimate=estimate)

    def play(self) -> Result:
        """Until nothing is under way: what is left waits for a person."""
        self._begin()
        while self.ends:
            self.now, _, command = heappop(self.ends)
            self._end(command)
            self._begin()
        started = (fact for fact in self.facts if isinstance(fact, f.AttemptStarted) and fact.number == 1)
        firsts = Counter(f"{fact.model} {fact.effort}" for fact in started)
        dollars = self.state.spend["worker"].priced_dollars + self.planner_calls * PLANNER
        return Result(self.state.commits, dollars, self._rest(), firsts)

    def _rest(self) -> float:
        """What landing the rest costs on the dearest rung, each attempt after a call of the planner."""
        dollars, rung = 0.0, list(LANDS)[-1]
        for number in range(self.subtasks):
            if self.state.subtasks[f"s{number}"].landed is None:
                lands = self._share(number, rung)
                dollars += (COSTS[rung] * FACTOR[self.sizes[number]] + PLANNER) / max(lands, LEAST)
        return dollars

    def _share(self, number: int, rung: str) -> float:
        """How likely an attempt at this subtask lands."""
        share = LANDS[rung][self.sizes[number]]
        return 1 / (1 + exp(self.hardness[number] - log(share / (1 - share)) * _SPREAD))

    def record(self, *facts: f.Fact) -> None:
        for fact in facts:
            self.state = evolve(self.state, fact)
            self.facts.append(fact)
        while decisions := decide(self.state, self.now):
            for decision in decisions:
                self.state = evolve(self.state, decision)
                self.facts.append(decision)

    def _begin(self) -> None:
        for command in effects(self.state, self.now):
            if command not in self.begun:
                self.begun.add(command)
                heappush(self.ends, (self.now + self._seconds(command), len(self.begun), command))

    def _seconds(self, command: Command) -> float:
        match command:
            case RunAttempt(subtask=id_):
                return ATTEMPT_S[self.sizes[int(id_[1:])]] * self.chance.uniform(0.5, 1.5)
            case CallPlanner():
                return PLANNER_S
            case _:
                return 1.0

    def _end(self, command: Command) -> None:
        match command:
            case RunAttempt(subtask=id_, number=number):
                self._work(id_, number)
            case VerifyAttempt(subtask=id_, number=number):
                self._verify(id_, number)
            case CallPlanner(call=call):
                self.planner_calls += 1
                failed = self.state.subtasks.ids(undecided_failures(self.state))
                retry = tuple(Retry(id=id_, guidance="another way") for id_ in failed)
                self.record(
                    f.PlanRevised(
                        at=self.now, call=call, by="planner", revision=Revision(assessment="again", retry=retry)
                    )
                )
            case CheckBase(base=base):
                self.record(f.BaseChecked(at=self.now, base=base))
            case Publish(tip=tip):
                self.record(f.Published(at=self.now, tip=tip))
            case _:
                members = next(
                    each for each in self.state.landing.open_batches if each.number == command.number
                ).members
                tip = members[-1].commit
                self.record(f.BatchTested(at=self.now, number=command.number, tip=tip, landed=members))

    def _work(self, id_: str, number: int) -> None:
        size, rung = self.sizes[int(id_[1:])], self._rung(id_)
        dollars = COSTS[rung] * FACTOR[size] * self.chance.lognormvariate(-0.08, 0.4)
        called = f.ModelCalled(
            at=self.now,
            role="worker",
            model=rung.split()[0],
            usage=Usage(),
            dollars=dollars,
            seconds=1.0,
            subtask=id_,
            attempt=number,
        )
        report = f.Report(status="done", summary="done")
        self.record(f.WorkerStarted(at=self.now, subtask=id_, number=number), called)
        commit = f"{id_}-{number}"
        self.record(f.AttemptCommitted(at=self.now, subtask=id_, number=number, commit=commit, paths=(), report=report))

    def _verify(self, id_: str, number: int) -> None:
        if self.chance.random() < self._share(int(id_[1:]), self._rung(id_)):
            self.record(f.AttemptVerified(at=self.now, subtask=id_, number=number, checks=()))
        else:
            red = f.Failure(kind="check", summary="red")
            self.record(f.AttemptFailed(at=self.now, subtask=id_, number=number, failure=red))

    def _rung(self, id_: str) -> str:
        attempt = self.state.subtasks[id_].attempts[-1]
        return f"{attempt.model} {attempt.effort}"


_SPREAD = (1 + 0.35 * HARDNESS**2) ** 0.5  # so that the share over all difficulties is the one given
_WHERE = {"goal": "", "repository": "", "base": "b", "base_name": "main", "result_branch": "fleet/r"}
