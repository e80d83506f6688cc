"""The engine's ports in memory: a world in which a commit is the set of subtasks whose work it holds.

Each fake keeps one contract of `fleet.ports`; what a test wants to go wrong is a field.
"""

import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from anyio import Event, create_task_group, fail_after, sleep
from anyio.lowlevel import checkpoint

from fleet.core.base.ids import RunId, Sha
from fleet.core.base.usage import Cost, Usage
from fleet.core.facts import facts as f
from fleet.core.history.evolve import evolve
from fleet.core.plans.limits import Policy
from fleet.core.plans.plan import Criterion, Plan
from fleet.core.plans.revision import Problem, Revision
from fleet.core.policy.decide import RULES, Rule
from fleet.core.policy.requests import Request
from fleet.core.state.state import RunState
from fleet.engine.adapters import Adapters
from fleet.engine.checks import Gate
from fleet.engine.loop import Engine
from fleet.engine.perform import Performer
from fleet.ports.agents import (
    Meter,
    ModelUse,
    PlannerBrief,
    PlannerRepository,
    WorkerBrief,
    Workspace,
)
from fleet.ports.worktrees import Change, EffectError, Merged, Signature
from tests.fleet.core.pretend import started
from tests.fleet.eyes import Files

BASE = Sha("base")
LIMIT_S = 30
QUICK = Policy(settle_s=0, backoff_first_s=0.001, backoff_cap_s=0.002, answer_wait_s=0)


class RealClock:
    """Time passes as it does."""

    def now(self) -> float:
        return time.monotonic()


@dataclass
class FakeMemory:
    """A journal in a list: each append is one transaction."""

    appends: list[list[f.Fact]] = field(default_factory=list)
    inbox: dict[int, Request] = field(default_factory=dict)
    before_append: Callable[[], None] = lambda: None
    asked: int = 0
    _seen: int = -1

    def append(self, facts: Sequence[f.Fact], *, taken: Iterable[int] = ()) -> None:
        self.before_append()
        self.appends.append(list(facts))
        for id_ in taken:
            self.inbox.pop(id_, None)

    def changed(self) -> bool:
        self._seen, before = self.asked, self._seen
        return self._seen != before

    def requests(self) -> list[tuple[int, Request]]:
        return sorted(self.inbox.items())

    def ask(self, request: Request) -> None:
        self.asked += 1
        self.inbox[self.asked] = request

    @property
    def facts(self) -> list[f.Fact]:
        return [fact for group in self.appends for fact in group]

    def kinds(self) -> Counter[str]:
        return Counter(fact.kind for fact in self.facts)

    def replayed(self, first: f.RunStarted) -> RunState:
        state = evolve(None, first)
        for fact in self.facts:
            state = evolve(state, fact)
        return state


@dataclass
class FakeGit:
    """What commits hold, which are pinned, and where the integration branch is."""

    holds: dict[Sha, frozenset[str]] = field(default_factory=lambda: {BASE: frozenset()})
    pins: dict[tuple[str, int], Change] = field(default_factory=dict)
    branch: list[tuple[Sha, f.Member | None]] = field(default_factory=lambda: [(BASE, None)])
    published: list[Sha] = field(default_factory=list)

    def commit(self, name: str, holds: Iterable[str]) -> Sha:
        commit = Sha(name)
        self.holds[commit] = frozenset(holds)
        return commit


@dataclass
class FakeWorktrees:
    """Leases on commits. A check `check x` passes where the work of x is; `red` commands never do."""

    git: FakeGit
    red: set[str] = field(default_factory=set)
    unchanged: set[str] = field(default_factory=set)
    """Subtasks whose attempts change nothing."""
    notes: str = ""
    patch: Callable[[Sha, Sha], str] = "{}..{}".format
    """The difference of two commits as text."""
    broken_checks: Counter[str] = field(default_factory=Counter)
    """How often checks of a commit fail because of the machine."""
    checked: list[tuple[Sha, str]] = field(default_factory=list)
    setups: list[f.SetupRun] = field(default_factory=list)
    out: int = 0

    @asynccontextmanager
    async def lease(self, base: Sha) -> AsyncIterator["FakeLease"]:
        self.out += 1
        try:
            yield FakeLease(self, base)
        finally:
            self.out -= 1

    async def pinned(self, run: RunId, subtask: str, attempt: int) -> Change | None:
        del run
        return self.git.pins.get((subtask, attempt))

    async def diff(self, base: Sha, commit: Sha) -> str:
        return self.patch(base, commit)

    async def tree(self, commit: Sha) -> Sha:
        return Sha(f"tree of {sorted(self.git.holds[commit])}")

    def finished_setups(self) -> tuple[f.SetupRun, ...]:
        finished, self.setups = tuple(self.setups), []
        return finished

    async def put_back(self, commit: Sha, base: Sha, paths: Sequence[str]) -> Sha:
        raise AssertionError(commit, base, paths)

    def at(self, commit: Sha) -> PlannerRepository:
        del commit
        return Files({"AGENTS.md": self.notes} if self.notes else {})


@dataclass
class FakeLease:
    """A worktree that is ours for a while."""

    worktrees: FakeWorktrees
    base: Sha
    workspace: Any = None
    """Fake workers never use it."""

    async def check(self, criterion: Criterion, *, lands: bool = False) -> f.CheckRun:
        del lands
        await checkpoint()
        world = self.worktrees
        if world.broken_checks[self.base] > 0:
            world.broken_checks[self.base] -= 1
            raise EffectError(f.Failure(kind="infrastructure", summary="no room for a box"))
        return self._run(criterion)

    def _run(self, criterion: Criterion) -> f.CheckRun:
        command = criterion.run or ""
        self.worktrees.checked.append((self.base, command))
        verb, _, wanted = command.partition(" ")
        there = self.worktrees.git.holds[self.base]
        passed = wanted in there if verb == "check" else wanted not in there
        return f.CheckRun(
            criterion=criterion.criterion,
            command=command,
            passed=passed and command not in self.worktrees.red,
            exit_code=0 if passed else 1,
            output="it says so",
        )

    async def commit(self, signature: Signature, touches: Sequence[str]) -> Change | f.Failure:
        git, key = self.worktrees.git, (signature.subtask, signature.attempt)
        if signature.subtask in self.worktrees.unchanged:
            return f.Failure(kind="empty", summary="nothing was changed")
        name = git.commit(f"c-{key[0]}-{key[1]}", git.holds[self.base] | {signature.subtask})
        change = Change(commit=name, paths=tuple(touches) or (f"{key[0]}.py",))
        if not signature.unfinished:
            git.pins[key] = change
        return change


@dataclass
class FakeIntegrator:
    """Merges by joining sets. `conflicting` subtasks do not merge; `refuses` is why the user's branch can't move."""

    git: FakeGit
    conflicting: set[str] = field(default_factory=set)
    refuses: str | None = None
    merges: list[tuple[str, ...]] = field(default_factory=list)

    async def merge(self, tip: Sha, members: Sequence[f.Member]) -> Merged:
        self.merges.append(tuple(member.subtask for member in members))
        landed, conflicts = [], []
        for member in members:
            if member.subtask in self.conflicting:
                conflicts.append((member, f.Failure(kind="conflict", summary="does not merge")))
                continue
            if member.subtask in self.git.holds[tip]:
                conflicts.append((member, f.Failure(kind="empty", summary="is there already")))
                continue
            tip = self.git.commit(f"{tip}+{member.subtask}", self.git.holds[tip] | {member.subtask})
            landed.append(member.model_copy(update={"commit": tip}))
        return Merged(tip=tip, landed=tuple(landed), conflicts=tuple(conflicts))

    async def advance(self, run: RunId, *, new: Sha, old: Sha) -> bool:
        del run
        if self.git.branch[-1][0] != old:
            return False
        tips = [tip for tip, _ in self.git.branch]
        if new in tips:  # back, because the move could not be recorded
            self.git.branch[tips.index(new) + 1 :] = []
            return True
        names = new.removeprefix(old).strip("+").split("+")
        for name in names:
            tip, _ = self.git.branch[-1]
            attempt = max(number for subtask, number in self.git.pins if subtask == name)
            commit = Sha(f"{tip}+{name}")
            self.git.branch.append((commit, f.Member(subtask=name, attempt=attempt, commit=commit)))
        return True

    async def landed_since(self, run: RunId, old: Sha) -> tuple[f.Member, ...]:
        del run
        place = [tip for tip, _ in self.git.branch].index(old)
        return tuple(member for _, member in self.git.branch[place + 1 :] if member is not None)

    async def publish(self, run: RunId, tip: Sha) -> str | None:
        del run
        if self.refuses is None:
            self.git.published.append(tip)
        return self.refuses


Plans = Callable[[PlannerBrief], Revision | f.Failure | None]
Works = Callable[[WorkerBrief], f.Report | f.Failure]
FINISH = Revision(assessment="all is there", finished=True, synthesis="all of it")
DONE = f.Report(status="done", summary="did it")
USE = ModelUse(model="m", usage=Usage(input=10, output=1), dollars=0.01, seconds=0.1, turn=1, doing="bash")


def finishes(brief: PlannerBrief) -> Revision:
    """Finished when everything is; until then everything is fine."""
    done = all(subtask["status"] in {"merged", "dropped"} for subtask in brief.state["subtasks"])
    return FINISH if done else Revision(assessment="continue")


@dataclass
class FakePlanner:
    """Answers each call with what `plans` says; an exception is a bug of ours."""

    plans: Plans = finishes
    briefs: list[PlannerBrief] = field(default_factory=list)
    problems: list[Sequence[Problem]] = field(default_factory=list)

    async def plan(
        self,
        brief: PlannerBrief,
        repository: PlannerRepository,
        submit: Callable[[Revision], Awaitable[Sequence[Problem]]],
        meter: Meter,
    ) -> f.Failure | None:
        del repository
        self.briefs.append(brief)
        await meter.reserve("m", Cost())
        await meter.used(USE)
        answer = self.plans(brief)
        if isinstance(answer, Revision):
            self.problems.append(await submit(answer))
            return None
        return answer


@dataclass
class FakeWorker:
    """Says what `works` says. Those in `slow` wait until `release` is called."""

    works: Works = lambda _: DONE
    model: str | None = "m"
    slow: set[str] = field(default_factory=set)
    briefs: list[WorkerBrief] = field(default_factory=list)
    paid: Counter[str] = field(default_factory=Counter)
    """How often each subtask's model was called."""
    may_call: list[bool] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    _gate: Event = field(default_factory=Event)

    def release(self) -> None:
        self._gate.set()

    async def run(self, brief: WorkerBrief, desk: Workspace, meter: Meter) -> f.Report | f.Failure:
        del desk
        self.briefs.append(brief)
        await meter.reserve("m", Cost())
        self.paid[brief.subtask.id] += 1
        await meter.used(USE)
        self.may_call.append(meter.may_call())
        if brief.subtask.id in self.slow:
            finished = False
            try:
                await self._gate.wait()
                finished = True
            finally:
                if not finished:
                    self.stopped.append(brief.subtask.id)
        return self.works(brief)

    def tried(self) -> Counter[str]:
        return Counter(brief.subtask.id for brief in self.briefs)


@dataclass
class FakeFleet:
    """One run with all its fakes, as the composition root would join them."""

    plan: Plan | None = None
    policy: Policy = QUICK
    gate: Gate = field(default_factory=Gate)
    memory: FakeMemory = field(default_factory=FakeMemory)
    git: FakeGit = field(default_factory=FakeGit)
    planner: FakePlanner = field(default_factory=FakePlanner)
    worker: Any = field(default_factory=FakeWorker)
    policy_rules: Sequence[Rule] = RULES
    epoch: int = 0

    def __post_init__(self) -> None:
        self.clock = RealClock()
        self.first = started(self.policy, self.plan).model_copy(update={"at": self.clock.now()})
        self.worktrees = FakeWorktrees(self.git)
        self.integrator = FakeIntegrator(self.git)

    async def run(self, beside: Callable[[Engine], Coroutine[Any, Any, None]] | None = None) -> RunState:
        """One life of the engine, from what the journal holds; `beside` runs next to it."""
        self.epoch += 1
        engine = Engine(self.memory.replayed(self.first), self.memory, self.clock, rules=self.policy_rules)
        epoch = f.EngineStarted(at=self.clock.now(), epoch=self.epoch, pid=1, host="here", version="1")
        with fail_after(LIMIT_S):
            async with create_task_group() as sides:
                if beside is not None:
                    sides.start_soon(beside, engine)
                await engine.run(Performer(engine, self.world()), epoch)
        return engine.state

    def world(self) -> Adapters:
        return Adapters(
            planner=self.planner,
            workers={"coder": self.worker},
            descriptions={"coder": "writes code"},
            worktrees=self.worktrees,
            commits=self.worktrees,
            integrator=self.integrator,
            publish=self.integrator.publish,
            clock=self.clock,
            gate=self.gate,
            again_s=0.0,
        )


async def wait_until(true: Callable[[], bool]) -> None:
    """Until something is so; the test fails if it never is."""
    with fail_after(LIMIT_S):
        while not true():  # noqa: ASYNC110 - what is waited for knows no events
            await sleep(0.002)
