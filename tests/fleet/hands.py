"""Hands made of paper, for tests of the loop: commits are texts, merging appends, a check asks the test."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import accumulate, islice

from anyio import sleep_forever

from fleet.core.base.ids import Sha, SubtaskId
from fleet.core.facts import facts as f
from fleet.core.history.evolve import evolve
from fleet.core.plans.limits import Policy
from fleet.core.plans.plan import Criterion, Plan, Subtask
from fleet.core.policy.decide import decide
from fleet.core.state.state import RunState
from fleet.ports.agents import PlannerRepository, Workspace
from fleet.ports.worktrees import Change, Merged, Signature
from tests.fleet.eyes import Files

BASE = Sha("base")
Verdict = Callable[[Sha, str, int], bool]
"""Whether a command passes on a tree, the n-th time it is run there."""


class Clock:
    def now(self) -> float:
        return 1.0


@dataclass
class Book:
    """An engine without a loop: what is recorded is decided upon at once."""

    state: RunState
    facts: list[f.Fact] = field(default_factory=list)

    async def record(self, *facts: f.Fact) -> None:
        await self.propose(lambda _: facts)

    async def propose(self, facts: Callable[[RunState], Sequence[f.Fact]]) -> None:
        self._take(facts(self.state))
        while decisions := decide(self.state, 1.0):
            self._take(decisions)

    def note(self, *facts: f.Fact) -> None:
        self._take(facts)

    async def wait_instructed(self) -> None:
        await sleep_forever()

    def _take(self, facts: Sequence[f.Fact]) -> None:
        for fact in facts:
            self.state = evolve(self.state, fact)
            self.facts.append(fact)

    def results(self) -> list[f.BatchTested]:
        return [fact for fact in self.facts if isinstance(fact, f.BatchTested)]


@dataclass
class PaperLease:
    tree: Sha
    hands: "PaperHands"

    @property
    def workspace(self) -> Workspace:
        raise AssertionError("no worker runs here")

    async def check(self, criterion: Criterion, *, lands: bool = False) -> f.CheckRun:
        del lands
        return self.hands.ask(self.tree, criterion)

    async def commit(self, signature: Signature, touches: Sequence[str]) -> Change | f.Failure:
        raise AssertionError(signature, touches)


@dataclass
class PaperHands:
    """A commit is the names of what it holds, as in `base a b`; its tree is the same in no order."""

    passes: Verdict = lambda *_: True
    branch: Sha = BASE
    ran: list[tuple[Sha, str]] = field(default_factory=list)
    leases: int = 0
    clashes: set[str] = field(default_factory=set)
    files: tuple[str, ...] = ()
    setups: list[f.SetupRun] = field(default_factory=list)

    def ask(self, tree: Sha, criterion: Criterion) -> f.CheckRun:
        command = criterion.run or ""
        self.ran.append((tree, command))
        passed = self.passes(tree, command, self.ran.count((tree, command)))
        ran_tests = f.RanTests() if "pytest" in command else None
        return f.CheckRun(criterion=criterion.criterion, command=command, passed=passed, ran_tests=ran_tests)

    @asynccontextmanager
    async def lease(self, base: Sha) -> AsyncIterator[PaperLease]:
        self.leases += 1
        yield PaperLease(await self.tree(base), self)

    async def tree(self, commit: Sha) -> Sha:
        return Sha(" ".join(sorted(commit.split())))

    async def pinned(self, run: str, subtask: str, attempt: int) -> Change | None:
        raise AssertionError(run, subtask, attempt)

    async def diff(self, base: Sha, commit: Sha) -> str:
        return f"from {base} to {commit}"

    def finished_setups(self) -> tuple[f.SetupRun, ...]:
        finished, self.setups = tuple(self.setups), []
        return finished

    async def put_back(self, commit: Sha, base: Sha, paths: Sequence[str]) -> Sha:
        raise AssertionError(commit, base, paths)

    def at(self, commit: Sha) -> PlannerRepository:
        del commit
        return Files(dict.fromkeys(self.files, ""))

    async def merge(self, tip: Sha, members: Sequence[f.Member]) -> Merged:
        landed, conflicts = [], []
        for member in members:
            if member.subtask in self.clashes:
                conflicts.append((member, f.Failure(kind="conflict", summary="clashes")))
                continue
            if member.subtask in tip.split():
                conflicts.append((member, f.Failure(kind="empty", summary="is there already")))
                continue
            tip = Sha(f"{tip} {member.subtask}")
            landed.append(member.model_copy(update={"commit": tip}))
        return Merged(tip=tip, landed=tuple(landed), conflicts=tuple(conflicts))

    async def advance(self, run: str, *, new: Sha, old: Sha) -> bool:
        del run
        if self.branch != old:
            return False
        self.branch = new
        return True

    async def landed_since(self, run: str, old: Sha) -> tuple[f.Member, ...]:
        del run
        assert self.branch.startswith(old)
        names = self.branch.removeprefix(old).split()
        tips = map(Sha, accumulate(names, "{} {}".format, initial=str(old)))
        return tuple(
            f.Member(subtask=name, attempt=1, commit=tip)
            for name, tip in zip(names, islice(tips, 1, None), strict=True)
        )

    async def publish(self, run: str, tip: Sha) -> str | None:
        raise AssertionError(run, tip)


def subtask(id_: str, check: str) -> Subtask:
    works = Criterion(criterion=f"{id_} works", run=check.format(id_))
    return Subtask(id=id_, title=f"Build {id_}", goal=f"Build {id_}.", acceptance=(works,))


def queued(
    letters: str,
    policy: Policy | None = None,
    *,
    base: str = "base",
    commits: Mapping[SubtaskId, str] | None = None,
    check: str = "check {}",
) -> Book:
    """A run in which these subtasks wait to land, one letter each."""
    start = f.RunStarted(
        at=0.0,
        run="r1",
        goal="the epic",
        repository="somewhere",
        base=base,
        base_name="main",
        result_branch="fleet/r1",
        policy=policy or Policy(every_commit_within_s=0),
        plan=Plan(subtasks=tuple(subtask(id_, check) for id_ in letters)),
    )
    state, made = evolve(None, start), commits or {SubtaskId(id_): f"{base} {id_}" for id_ in letters}
    report = f.Report(status="done", summary="built it")
    for at, id_ in enumerate(map(SubtaskId, letters), 1):
        for fact in (
            f.AttemptStarted(
                at=0.01 * at, subtask=id_, number=1, worker="coder", model=None, base=Sha(base), strategy="first"
            ),
            f.AttemptCommitted(at=0.01 * at, subtask=id_, number=1, commit=made[id_], paths=(id_,), report=report),
            f.AttemptVerified(at=0.01 * at, subtask=id_, number=1, checks=()),
        ):
            state = evolve(state, fact)
    return Book(state)


def probed(book: Book, *sizes: int) -> Book:
    """Open probes of these sizes, whatever the policy would choose."""
    for size in sizes:
        queue = book.state.landing.queue[:size]
        last = {id_: book.state.subtasks[id_].attempts[-1] for id_ in queue}
        members = tuple(f.Member(subtask=id_, attempt=last[id_].number, commit=last[id_].commit or "") for id_ in queue)
        number = book.state.landing.batches + 1
        book.state = evolve(book.state, f.BatchFormed(at=1.0, number=number, members=members))
    return book
