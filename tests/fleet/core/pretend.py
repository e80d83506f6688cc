"""A pretended world for the core: facts instead of effects, a clock of its own, chance from a seed. No I/O at all."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import get_args

from fleet.core.base.ids import SubtaskId
from fleet.core.base.usage import Usage
from fleet.core.facts import facts as f
from fleet.core.history.evolve import evolve
from fleet.core.plans.limits import Policy
from fleet.core.plans.plan import PLANNER, Criterion, Plan, Subtask
from fleet.core.plans.revision import Ask, Drop, PlanContext, Retry, Revision, Split, revise_plan
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
from fleet.core.policy.landing import send_back
from fleet.core.policy.requests import awaits_approval
from fleet.core.state.state import RunState
from fleet.core.state.status import Area, for_revision, seen_by, statuses
from fleet.core.state.subtasks import SubtaskState

KINDS: tuple[f.FailureKind, ...] = get_args(f.FailureKind)
KINDS_HERE = tuple(kind for kind in KINDS if kind != "configuration")


def ids(*names: str) -> tuple[SubtaskId, ...]:
    return tuple(map(SubtaskId, names))


def subtask(id_: str, *needs: str) -> Subtask:
    check = Criterion(criterion="it works", run=f"check {id_}")
    title = f"Build {id_}"
    return Subtask(id=SubtaskId(id_), title=title, goal=f"{title}.", acceptance=(check,), depends_on=ids(*needs))


def subtask_of(state: RunState, id_: str) -> SubtaskState:
    return state.subtasks[SubtaskId(id_)]


def attempt_at(id_: str, number: int = 1) -> RunAttempt:
    return RunAttempt(SubtaskId(id_), number)


def checks_of(id_: str, number: int = 1) -> VerifyAttempt:
    return VerifyAttempt(SubtaskId(id_), number)


def sent(members: Iterable[f.Member], failure: f.Failure) -> tuple[f.Ejected, ...]:
    return tuple(f.Ejected(subtask=m.subtask, attempt=m.attempt, failure=failure) for m in members)


def replayed(facts: Iterable[f.Fact]) -> RunState | None:
    """The state after these facts; None if there are none."""
    state: RunState | None = None
    for fact in facts:
        state = evolve(state, fact)
    return state


def started(policy: Policy | None = None, plan: Plan | None = None) -> f.RunStarted:
    return f.RunStarted(
        at=0.0,
        run="r",
        goal="the epic",
        repository="somewhere",
        base="base",
        base_name="main",
        result_branch="fleet/r",
        policy=policy or Policy(),
        plan=plan,
    )


@dataclass
class Pretend:
    """Plays a run to its end. `trouble` is how often an effect fails."""

    seed: int
    policy: Policy
    trouble: float = 0.3
    areas: float = 0.0
    """How often a subtask is an area."""
    now: float = 0.0
    state: RunState = field(init=False)
    facts: list[f.Fact] = field(default_factory=list)
    landed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)  # noqa: S311 - a pretended world
        self.facts = [started(self.policy)]
        self.state = evolve(None, self.facts[0])
        self.names = 0
        self.older: list[str] = []
        self.settle()

    # ---- the engine's part

    def record(self, *facts: f.Fact) -> None:
        for fact in facts:
            self.state = evolve(self.state, fact)
            self.facts.append(fact)

    def settle(self) -> None:
        while decisions := decide(self.state, self.now):
            self.record(*decisions)

    def step(self) -> None:
        """One effect ends, or time passes."""
        wanted = effects(self.state, self.now)
        wake = next_wake(self.state, self.now)
        if wanted and (wake is None or self.chance.random() < 0.9):
            self.now += self.chance.random()
            self.perform(self.chance.choice(wanted))
        elif wake is not None:
            self.now = wake
        elif awaits_approval(self.state):
            self.record(f.PlanApproved(at=self.now, version=self.state.plan.version, by="someone"))
        self.settle()

    def pending(self) -> bool:
        """Whether anything at all can move this run on."""
        waits = next_wake(self.state, self.now) is not None or awaits_approval(self.state)
        return waits or bool(effects(self.state, self.now) or self.state.open_questions())

    # ---- the world's part

    def perform(self, command: Command) -> None:
        match command:
            case CheckBase(base=base):
                self.gate(base)
            case CallPlanner(call=call, area=area):
                self.plan(call, area)
            case RunAttempt(subtask=id_, number=number):
                self.work(id_, number)
            case VerifyAttempt(subtask=id_, number=number):
                self.verify(id_, number)
            case TestBatch(number=number):
                self.land(number)
            case Publish(tip=tip):
                self.record(f.Published(at=self.now, tip=tip))

    def gate(self, base: str) -> None:
        red = f.CheckRun(criterion="the gate", command="gate", passed=self.chance.random() > self.trouble / 5)
        self.record(f.BaseChecked(at=self.now, base=base, checks=(red,)))

    def unlucky(self) -> bool:
        return self.chance.random() < self.trouble

    def failure(self) -> f.Failure:
        return f.Failure(kind=self.chance.choice(KINDS_HERE), summary="bad luck", evidence="it says so")

    def work(self, id_: str, number: int) -> None:
        self.record(f.WorkerStarted(at=self.now, subtask=id_, number=number))
        self.record(
            f.ModelCalled(
                at=self.now,
                role="worker",
                model="m",
                usage=Usage(input=10, output=1),
                dollars=0.01,
                seconds=1.0,
                subtask=id_,
                attempt=number,
                turn=1,
            )
        )
        if self.unlucky():
            self.record(f.AttemptFailed(at=self.now, subtask=id_, number=number, failure=self.failure()))
            return
        report = f.Report(status="done", summary="did it")
        commit = f"c-{id_}-{number}"
        self.record(
            f.AttemptCommitted(at=self.now, subtask=id_, number=number, commit=commit, paths=(id_,), report=report)
        )

    def verify(self, id_: str, number: int) -> None:
        if self.unlucky():
            failure = f.Failure(kind="check", summary="red")
            self.record(f.AttemptFailed(at=self.now, subtask=id_, number=number, failure=failure))
        else:
            self.record(f.AttemptVerified(at=self.now, subtask=id_, number=number, checks=()))

    def land(self, number: int) -> None:
        """A probe ends, perhaps before a shorter one that began with it. What is bad makes every tree red it is in."""
        probe = self.state.landing.open_batch(number)
        assert probe is not None
        if self.chance.random() < self.trouble / 10:
            lost = f.Failure(kind="infrastructure", summary="the machine is to blame")
            self.record(
                f.BatchTested(at=self.now, number=number, tip=self.state.tip, ejected=sent(probe.members, lost))
            )
            return
        if probe.alone:
            self.try_alone(number, probe.members[0])
            return
        clash = [member for member in probe.members if self.clashes(member)]
        merged = [member for member in probe.members if member not in clash]
        bad = next((index for index, member in enumerate(merged) if self.bad(member) or self.flakes()), None)
        landed, suspects = merged, list[f.Member]()
        if bad is not None:
            every = self.policy.every_commit or self.policy.every_commit_within_s
            landed, suspects = (merged[:bad], merged[bad : bad + 1]) if every else ([], merged)
        self.landed += [member.subtask for member in landed]
        self.record(
            f.BatchTested(
                at=self.now,
                number=number,
                tip=landed[-1].commit if landed else self.state.tip,
                landed=tuple(landed),
                ejected=sent(clash, f.Failure(kind="conflict", summary="clashes")) if bad is None else (),
                red=bad is not None,
                suspects=tuple(member.subtask for member in suspects),
            )
        )

    def try_alone(self, number: int, member: f.Member) -> None:
        red = self.bad(member)
        if red:
            self.record(send_back(self.state, member.subtask, (), self.now))
        self.record(f.BatchTested(at=self.now, number=number, tip=self.state.tip, red=red))

    def flakes(self) -> bool:
        """Whether a gate is red for no reason: only where a verdict is confirmed that does no harm."""
        return self.policy.reruns > 0 and self.chance.random() < self.trouble / 10

    def bad(self, member: f.Member) -> bool:
        return random.Random(f"{self.seed} bad {member.commit}").random() < self.trouble  # noqa: S311

    def clashes(self, member: f.Member) -> bool:
        return random.Random(f"{self.seed} clash {member.commit}").random() < self.trouble / 3  # noqa: S311

    def plan(self, call: int, area: Area) -> None:
        if self.unlucky():
            failure = f.Failure(kind="transient", summary="overloaded")
            self.record(f.PlannerFailed(at=self.now, call=call, failure=failure, not_before=self.now + 1, area=area))
            return
        revision = self.revision(area)
        known = PlanContext(max_areas=self.policy.max_areas)
        revised = revise_plan(self.state.plan, revision, for_revision(self.state, area), known)
        if not isinstance(revised, Plan):
            revision = Revision(assessment="never mind")
        self.record(f.PlanRevised(at=self.now, call=call, by="planner", revision=revision, area=area))

    def revision(self, area: Area) -> Revision:
        seen = seen_by(self.state, area)
        where = {id_: status for id_, status in statuses(self.state, self.now).items() if id_ in seen}
        self.older = [*where]
        if not where:
            return Revision(assessment="the first steps", add=tuple(self.new(self.chance.randint(1, 6))))
        open_ = [id_ for id_, status in where.items() if status not in {"merged", "dropped", "split"}]
        if not open_ and self.chance.random() < 0.7:
            return Revision(assessment="done", finished=True, synthesis="all of it")
        retry, split, drop, ask = [], [], [], []
        for id_ in (id_ for id_, status in where.items() if status in {"failed", "blocked"}):
            roll = self.chance.random()
            if roll < 0.5:
                retry.append(Retry(id=id_, guidance="try harder"))
            elif roll < 0.7:
                split.append(Split(id=id_, why="too large", into=tuple(self.new(2))))
            elif roll < 0.8:
                drop.append(Drop(id=id_, why="not worth it"))
            elif roll < 0.9:
                ask.append(Ask(about=id_, question="how?"))
        add = self.new(self.chance.randint(1, 3)) if len(where) < 12 and self.chance.random() < 0.2 else []
        return Revision(
            assessment="continue",
            add=tuple(add),
            retry=tuple(retry),
            split=tuple(split),
            drop=tuple(drop),
            ask=tuple(ask),
        )

    def new(self, count: int) -> list[Subtask]:
        fresh: list[Subtask] = []
        for _ in range(count):
            self.names += 1
            older = [*self.older, *(made.id for made in fresh)]
            needs = self.chance.sample(older, k=min(len(older), self.chance.randint(0, 2)))
            made = subtask(f"s{self.names}", *needs)
            fresh.append(made.model_copy(update={"worker": PLANNER}) if self.chance.random() < self.areas else made)
        return fresh
