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

from fleet.checking import Gate
from fleet.core import facts as f
from fleet.core.evolve import evolve
from fleet.core.ids import Sha
from fleet.core.plan import Criterion, Plan
from fleet.core.policy import Policy
from fleet.core.requests import Request
from fleet.core.revision import Revision
from fleet.core.state import RunState
from fleet.core.usage import Usage
from fleet.core.validate import Problem
from fleet.engine import Engine
from fleet.perform import Performer
from fleet.ports import (
    NO_EXTRAS,
    Broken,
    Change,
    CommandResult,
    Desk,
    Extras,
    Merged,
    Meter,
    ModelUse,
    PlannerBrief,
    Repository,
    Signature,
    Tell,
    WorkerBrief,
    nobody,
)
from fleet.world import World
from tests.core.pretend import started
from tests.fleet.eyes import FakeRepository

BASE = "base"
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

    def append(self, facts: Sequence[f.Fact], *, taken: Iterable[int] = ()) -> None:
        self.before_append()
        self.appends.append(list(facts))
        for id_ in taken:
            del self.inbox[id_]

    def changed(self) -> bool:
        return bool(self.inbox)

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

    def commit(self, name: Sha, holds: Iterable[str]) -> Sha:
        self.holds[name] = frozenset(holds)
        return name


@dataclass
class FakeWorktrees:
    """Leases on commits. A check `check x` passes where the work of x is; `red` commands never do."""

    git: FakeGit
    red: set[str] = field(default_factory=set)
    notes: str = ""
    broken_checks: Counter[str] = field(default_factory=Counter)
    """How often checks of a commit fail because of the machine."""
    checked: list[tuple[Sha, str]] = field(default_factory=list)
    out: int = 0
    about: list[tuple[str, ...]] = field(default_factory=list)
    """What each lease was asked to show at least."""

    @asynccontextmanager
    async def lease(self, base: Sha, about: Sequence[str] = ()) -> AsyncIterator["FakeLease"]:
        self.out += 1
        self.about.append(tuple(about))
        try:
            yield FakeLease(self, base)
        finally:
            self.out -= 1

    async def pinned(self, run: str, subtask: str, attempt: int) -> Change | None:
        del run
        return self.git.pins.get((subtask, attempt))

    async def diff(self, base: Sha, commit: Sha) -> str:
        return f"{base}..{commit}"

    async def tree(self, commit: Sha) -> Sha:
        return f"tree of {commit}"

    async def restored(self, commit: Sha, base: Sha, paths: Sequence[str]) -> Sha:
        raise AssertionError(commit, base, paths)

    def at(self, commit: Sha) -> Repository:
        return FakeRepository(commit, {"AGENTS.md": self.notes} if self.notes else {})


@dataclass
class FakeLease:
    """A worktree that is ours for a while."""

    worktrees: FakeWorktrees
    base: Sha

    @property
    def desk(self) -> Desk:
        return FakeDesk()

    async def check(
        self, criteria: Iterable[Criterion], tell: Tell = nobody, *, believe_red: bool = False
    ) -> tuple[f.CheckRun, ...]:
        del believe_red
        await checkpoint()
        world = self.worktrees
        if world.broken_checks[self.base] > 0:
            world.broken_checks[self.base] -= 1
            raise Broken(f.Failure(kind="infrastructure", summary="no room for a box"))
        runs = []
        for criterion in criteria:
            runs.append(self._run(criterion))
            tell(runs[-1])
        return tuple(runs)

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
        name = git.commit(f"c-{key[0]}-{key[1]}", git.holds[self.base] | {signature.subtask})
        change = Change(commit=name, paths=tuple(touches) or (f"{key[0]}.py",))
        if not signature.unfinished:
            git.pins[key] = change
        return change


class FakeDesk:
    """A place nobody uses: fake workers only talk."""

    root = "/work"

    async def run(self, command: str, *, timeout_s: float, extras: Extras = NO_EXTRAS) -> CommandResult:
        return CommandResult(exit_code=0, output=f"{command} {timeout_s} {extras}")

    async def read(self, path: str) -> bytes:
        return path.encode()

    async def write(self, path: str, data: bytes) -> None:
        del path, data

    async def list(self, path: str) -> Sequence[str]:
        return [path]


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
            tip = self.git.commit(f"{tip}+{member.subtask}", self.git.holds[tip] | {member.subtask})
            landed.append(member.model_copy(update={"commit": tip}))
        return Merged(tip=tip, landed=tuple(landed), conflicts=tuple(conflicts))

    async def advance(self, run: str, *, new: Sha, old: Sha) -> bool:
        if await self.tip(run) != old:
            return False
        names = new.removeprefix(old).strip("+").split("+")
        for name in names:
            tip, _ = self.git.branch[-1]
            attempt = max(number for subtask, number in self.git.pins if subtask == name)
            self.git.branch.append((f"{tip}+{name}", f.Member(subtask=name, attempt=attempt, commit=f"{tip}+{name}")))
        return True

    async def tip(self, run: str) -> Sha:
        del run
        return self.git.branch[-1][0]

    async def landed_since(self, run: str, old: Sha) -> tuple[f.Member, ...]:
        del run
        place = [tip for tip, _ in self.git.branch].index(old)
        return tuple(member for _, member in self.git.branch[place + 1 :] if member is not None)

    async def publish(self, run: str, *, tip: Sha) -> str | None:
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
    return FINISH if done else Revision(assessment="go on")


@dataclass
class FakePlanner:
    """Answers each call with what `plans` says; an exception is a bug of ours."""

    plans: Plans = finishes
    briefs: list[PlannerBrief] = field(default_factory=list)
    problems: list[Sequence[Problem]] = field(default_factory=list)

    async def plan(
        self,
        brief: PlannerBrief,
        repository: Repository,
        submit: Callable[[Revision], Awaitable[Sequence[Problem]]],
        meter: Meter,
    ) -> f.Failure | None:
        del repository
        self.briefs.append(brief)
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
    may_call: list[bool] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    _gate: Event = field(default_factory=Event)

    def release(self) -> None:
        self._gate.set()

    async def run(self, brief: WorkerBrief, desk: Desk, meter: Meter) -> f.Report | f.Failure:
        del desk
        self.briefs.append(brief)
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
    worker: FakeWorker = field(default_factory=FakeWorker)
    epoch: int = 0

    def __post_init__(self) -> None:
        self.clock = RealClock()
        self.first = started(self.policy, self.plan).model_copy(update={"at": self.clock.now()})
        self.worktrees = FakeWorktrees(self.git)
        self.integrator = FakeIntegrator(self.git)

    async def run(self, beside: Callable[[Engine], Coroutine[Any, Any, None]] | None = None) -> RunState:
        """One life of the engine, from what the journal holds; `beside` runs next to it."""
        self.epoch += 1
        engine = Engine(self.memory.replayed(self.first), self.memory, self.clock)
        epoch = f.EngineStarted(at=self.clock.now(), epoch=self.epoch, pid=1, host="here", version="1")
        with fail_after(LIMIT_S):
            async with create_task_group() as sides:
                if beside is not None:
                    sides.start_soon(beside, engine)
                await engine.run(Performer(engine, self.world()), epoch)
        return engine.state

    def world(self) -> World:
        return World(
            planner=self.planner,
            workers={"coder": self.worker},
            descriptions={"coder": "writes code"},
            worktrees=self.worktrees,
            integrator=self.integrator,
            clock=self.clock,
            gate=self.gate,
        )


async def wait_until(true: Callable[[], bool]) -> None:
    """Until something is so; the test fails if it never is."""
    with fail_after(LIMIT_S):
        while not true():  # noqa: ASYNC110 - what is waited for knows no events
            await sleep(0.002)
