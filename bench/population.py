"""A pretended repository: what attempts, checks and the planner cost and take there, and runs over its subtasks.

All that decides is the product's own (`decide`, `evolve`): rungs, climbs, batches, when the planner is called, what is
forecast. Each subtask has a size and a difficulty of its own, and a rung lands it with the share that is true for that
size, harder ones less often each time. The core knows nothing of these figures beyond what its facts say.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import ceil, exp, log
from typing import Any

from agents.rung_priors import assumed_rung
from fleet.core.base.usage import Usage
from fleet.core.history.evolve import evolve
from fleet.core.plans.limits import Policy
from fleet.core.plans.plan import Criterion, Estimate, Plan, Subtask
from fleet.core.plans.revision import Retry, Revision
from fleet.core.plans.rungs import Ladder, Size, parse_rung
from fleet.core.policy.decide import decide, next_wake
from fleet.core.policy.effects import (
    CallPlanner,
    CheckBase,
    Command,
    Publish,
    RunAttempt,
    TestBatch,
    VerifyAttempt,
    effects,
)
from fleet.core.policy.landing import every_tree
from fleet.core.state import facts as f
from fleet.core.state.state import RunState
from fleet.core.state.status import undecided_failures

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
PLANS = "claude-opus-5-5"
FIRST = 6  # what the first call of the planner takes and costs, which reads the repository, in others
NEAR = 12  # how far before a subtask the one is that it needs


@dataclass(frozen=True, slots=True)
class Truth:
    """How it really is in one repository."""

    lands: Mapping[str, Mapping[Size, float]] = field(default_factory=lambda: LANDS)
    costs: Mapping[str, float] = field(default_factory=lambda: COSTS)
    attempt_s: Mapping[Size, float] = field(default_factory=lambda: ATTEMPT_S)
    hardness: float = HARDNESS
    planner: float = PLANNER
    planner_s: float = PLANNER_S
    gate_s: float = 0.0
    spread: float = 0.4
    """Of what attempts with one rung at subtasks of one size cost, in logarithms."""
    time_spread: float = 0.0
    """Of what these attempts take; 0: from half of the usual time to half as much again, all equally likely."""
    call_spread: float = 0.0
    """Of what calls of the planner take and cost."""


@dataclass
class Population:
    """One run over all subtasks."""

    rungs: tuple[str, ...]
    seed: int = 0
    subtasks: int = 500
    workers: int = 16
    truth: Truth = Truth()
    evidence: f.EvidenceRead | None = None
    """What earlier runs saw; None: nothing is forecast, and nothing is known."""
    is_planned: bool = False
    """Whether the run's planner makes the plan."""
    chained: float = 0.0
    """The share of subtasks that depend on an earlier one."""
    now: float = 0.0
    facts: list[f.Fact] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)  # noqa: S311 - a simulation
        self.sizes = self.chance.choices(list(SIZES), weights=list(SIZES.values()), k=self.subtasks)
        self.hardness = [self.chance.gauss(0.0, self.truth.hardness) for _ in range(self.subtasks)]
        self.harder = (1 + 0.35 * self.truth.hardness**2) ** 0.5  # so that the share of all is the true one
        ladder = Ladder(rungs=tuple(assumed_rung(*parse_rung(rung), {}) for rung in self.rungs))
        policy = Policy(workers=self.workers, rungs={"coder": ladder}, check_base=self.truth.gate_s > 0)
        self.plan = Plan(goal="subtasks", subtasks=tuple(map(self._subtask, range(self.subtasks))))
        given = None if self.is_planned else self.plan
        self.state = evolve(None, f.RunStarted(at=0.0, run=f"r{self.seed}", plan=given, policy=policy, **_WHERE))
        begun = [self.evidence] if self.evidence is not None else []
        self.record(*begun, f.EngineStarted(at=0.0, epoch=1, pid=1, host="here", version="1"))
        self.begun: set[Command] = set()
        self.ends: list[tuple[float, int, Command]] = []
        self.planner_calls = 0

    def _subtask(self, number: int) -> Subtask:
        check = Criterion(criterion="it works", run="make test")
        estimate = Estimate(lines=LINES[self.sizes[number]])
        needs: tuple[str, ...] = ()
        if self.chained and number and self.chance.random() < self.chained:
            needs = (f"s{self.chance.randrange(max(0, number - NEAR), number)}",)
        return Subtask(
            id=f"s{number}", title="One", goal="One.", acceptance=(check,), estimate=estimate, depends_on=needs
        )

    # ---- the run

    def play(self) -> RunState:
        """Until nothing is under way: what is left waits for a person."""
        self._begin()
        while (at := self._next()) is not None:
            self.now = max(self.now, at)
            if self.ends and self.ends[0][0] <= at:
                self._end(heappop(self.ends)[2])
            else:
                self.record()
            self._begin()
        return self.state

    def _next(self) -> float | None:
        ends = self.ends[0][0] if self.ends else None
        wake = next_wake(self.state, self.now) if self.is_planned else None
        if ends is None and self.state.asked:
            return None
        return min((at for at in (ends, wake) if at is not None), default=None)

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
                return self.truth.attempt_s[self.sizes[int(id_[1:])]] * self._attempt()
            case CallPlanner(call=call):
                return self.truth.planner_s * self._call(call)
            case CheckBase():
                return self.truth.gate_s
            case TestBatch(number=number) if self.truth.gate_s:
                members = self._members(number)
                quick = every_tree(self.state, [member.subtask for member in members])
                return self.truth.gate_s * (ceil(len(members) / self.state.policy.slots) if quick else 1)
            case _:
                return 1.0

    def _attempt(self) -> float:
        """How much longer than usual an attempt is."""
        if not (spread := self.truth.time_spread):
            return self.chance.uniform(0.5, 1.5)
        return self.chance.lognormvariate(-spread * spread / 2, spread)

    def _call(self, call: int) -> float:
        """How much longer than usual a call of the planner is."""
        first = FIRST if self.is_planned and call == 1 else 1
        if not (spread := self.truth.call_spread):
            return first
        return first * self.chance.lognormvariate(-spread * spread / 2, spread)

    def _members(self, number: int) -> tuple[f.Member, ...]:
        return next(batch.members for batch in self.state.landing.open_batches if batch.number == number)

    # ---- how each command ends

    def _end(self, command: Command) -> None:
        match command:
            case RunAttempt(subtask=id_, number=number):
                self._work(id_, number)
            case VerifyAttempt(subtask=id_, number=number):
                self._verify(id_, number)
            case CallPlanner(call=call):
                self._plan(call)
            case CheckBase(base=base):
                gate = f.CheckRun(criterion="the gate", command="make test", passed=True, seconds=self.truth.gate_s)
                self.record(f.BaseChecked(at=self.now, base=base, checks=(gate,)))
            case Publish(tip=tip):
                self.record(f.Published(at=self.now, tip=tip))
            case TestBatch(number=number):
                members = self._members(number)
                self.record(f.BatchTested(at=self.now, number=number, tip=members[-1].commit, landed=members))

    def _plan(self, call: int) -> None:
        self.planner_calls += 1
        called = self._called("planner", PLANS, self.truth.planner * self._call(call), self.truth.planner_s, call=call)
        failed = self.state.subtasks.ids(undecided_failures(self.state))
        retry = tuple(Retry(id=id_, guidance="another way") for id_ in failed)
        add = self.plan.subtasks if not self.state.plan.subtasks else ()
        finished = self.is_planned and not add and not self.state.subtasks.open
        revision = Revision(assessment="again", add=add, retry=retry, finished=finished, synthesis="done" * finished)
        self.record(called, f.PlanRevised(at=self.now, call=call, by="planner", revision=revision))

    def _work(self, id_: str, number: int) -> None:
        size, rung = self.sizes[int(id_[1:])], self._rung(id_)
        spread = self.truth.spread
        dollars = self.truth.costs[rung] * FACTOR[size] * self.chance.lognormvariate(-spread * spread / 2, spread)
        called = self._called("worker", rung.split()[0], dollars, 1.0, subtask=id_, attempt=number)
        report = f.Report(status="done", summary="done")
        self.record(f.WorkerStarted(at=self.now, subtask=id_, number=number), called)
        commit = f"{id_}-{number}"
        self.record(f.AttemptCommitted(at=self.now, subtask=id_, number=number, commit=commit, paths=(), report=report))

    def _called(self, role: f.Role, model: str, dollars: float, seconds: float, **about: Any) -> f.ModelCalled:
        return f.ModelCalled(
            at=self.now, role=role, model=model, usage=Usage(), dollars=dollars, seconds=seconds, turn=1, **about
        )

    def _verify(self, id_: str, number: int) -> None:
        if self.chance.random() < self.share(int(id_[1:]), self._rung(id_)):
            self.record(f.AttemptVerified(at=self.now, subtask=id_, number=number, checks=()))
        else:
            red = f.Failure(kind="check", summary="red")
            self.record(f.AttemptFailed(at=self.now, subtask=id_, number=number, failure=red))

    def share(self, number: int, rung: str) -> float:
        """How likely an attempt at this subtask lands."""
        share = self.truth.lands[rung][self.sizes[number]]
        return 1 / (1 + exp(self.hardness[number] - log(share / (1 - share)) * self.harder))

    def _rung(self, id_: str) -> str:
        attempt = self.state.subtasks[id_].attempts[-1]
        return f"{attempt.model} {attempt.effort}"


_WHERE = {"goal": "", "repository": "", "base": "b", "base_name": "main", "result_branch": "fleet/r"}
