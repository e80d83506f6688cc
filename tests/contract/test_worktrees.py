"""The guarantees of worktrees that the engine relies on: of both real kinds, and of the fakes in its tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol

import pytest

from fleet.core.base.ids import Sha, SubtaskId
from fleet.core.facts.facts import Failure, Member
from fleet.core.plans.plan import Criterion
from fleet.ports.worktrees import Change, Commits, Integrator, Lease, Publish, Worktrees
from tests.fleet.fakes import BASE, FakeGit, FakeIntegrator, FakeWorktrees
from tests.fleet.hands import PaperHands
from tests.worktrees.conftest import RUN, make_repository, product_settings, sign
from worktrees.leases.run_worktrees import open_worktrees
from worktrees.target.target import inspect

FIRST = SubtaskId("first")


class Rig(Protocol):
    """One kind of worktrees, and how work is done there: the work of a subtask is a file with its name."""

    @property
    def base(self) -> Sha: ...

    @property
    def worktrees(self) -> Worktrees: ...

    @property
    def commits(self) -> Commits: ...

    @property
    def integrator(self) -> Integrator: ...

    @property
    def publish(self) -> Publish: ...

    def is_done(self, subtask: str) -> Criterion:
        """A check that passes where this subtask's work is."""
        ...

    async def work(self, lease: Lease, subtask: str) -> None: ...

    async def leave_nothing(self, subtask: str) -> None:
        """This subtask's next commit has no change in it."""
        ...

    async def candidate(self, subtask: str) -> Member: ...

    async def clashing(self, subtask: str) -> Member:
        """A candidate that does not merge onto the work of `first`."""
        ...


@dataclass
class FakeRig:
    git: FakeGit = field(default_factory=FakeGit)
    base: Sha = BASE

    def __post_init__(self) -> None:
        self.worktrees = self.commits = FakeWorktrees(self.git)
        self.integrator = FakeIntegrator(self.git)
        self.publish = self.integrator.publish

    def is_done(self, subtask: str) -> Criterion:
        return Criterion(criterion=f"{subtask} is done", run=f"check {subtask}")

    async def work(self, lease: Lease, subtask: str) -> None:
        """The fake's commit is the work."""

    async def leave_nothing(self, subtask: str) -> None:
        self.worktrees.unchanged.add(subtask)

    async def candidate(self, subtask: str) -> Member:
        return await committed(self, subtask)

    async def clashing(self, subtask: str) -> Member:
        self.integrator.conflicting.add(subtask)
        return await committed(self, subtask)


class PaperRig(FakeRig):
    """The leases are only for checks."""

    def __post_init__(self) -> None:
        self.worktrees = self.commits = self.integrator = self.paper = PaperHands(passes=self._holds)  # type: ignore[assignment]
        self.publish = self.paper.publish

    def _holds(self, tree: Sha, command: str, _: int) -> bool:
        return command.removeprefix("check ") in tree.split()

    async def candidate(self, subtask: str) -> Member:
        return Member(subtask=subtask, attempt=1, commit=f"{BASE} {subtask}")

    async def clashing(self, subtask: str) -> Member:
        self.paper.clashes.add(subtask)
        return await self.candidate(subtask)


@dataclass(frozen=True)
class RealRig:
    base: Sha
    worktrees: Worktrees
    commits: Commits
    integrator: Integrator
    publish: Publish

    def is_done(self, subtask: str) -> Criterion:
        return Criterion(criterion=f"{subtask} is done", run=f"test -f {subtask}")

    async def work(self, lease: Lease, subtask: str) -> None:
        await lease.workspace.write(subtask, f"{subtask}\n".encode())

    async def leave_nothing(self, subtask: str) -> None:
        """Nothing to prepare."""

    async def candidate(self, subtask: str) -> Member:
        return await committed(self, subtask)

    async def clashing(self, subtask: str) -> Member:
        async with self.worktrees.lease(self.base) as lease:
            await lease.workspace.write("first", b"something else\n")
            change = await lease.commit(sign(subtask), ())
        assert isinstance(change, Change), change
        return Member(subtask=subtask, attempt=1, commit=change.commit)


@asynccontextmanager
async def real(folder: Path, lease: Literal["overlay", "pool"]) -> AsyncIterator[RealRig]:
    target = await inspect(make_repository(folder / "project"))
    settings = product_settings(folder / "state", slots=2, lease=lease)
    async with open_worktrees(target, settings, RUN, target.base) as opened:
        yield RealRig(target.base, opened, opened, opened.integrator, opened.publisher.publish)


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
async def rig(kind: str, tmp_path: Path) -> AsyncIterator[Rig]:
    match kind:
        case "fake":
            yield FakeRig()
        case "paper":
            yield PaperRig()
        case "overlay" | "pool":
            async with real(tmp_path, kind) as opened:
                yield opened


async def committed(rig: Rig, subtask: str) -> Member:
    async with rig.worktrees.lease(rig.base) as lease:
        await rig.work(lease, subtask)
        change = await lease.commit(sign(subtask), (subtask,))
    assert isinstance(change, Change), change
    return Member(subtask=subtask, attempt=1, commit=change.commit)


async def passing(rig: Rig, commit: Sha, *subtasks: str) -> list[bool]:
    """Whether the work of each is there, as the checks of a lease at `commit` see it."""
    async with rig.worktrees.lease(commit) as lease:
        return [(await lease.check(rig.is_done(subtask))).passed for subtask in subtasks]


WORKING = pytest.mark.parametrize("kind", ["fake", "overlay", "pool"], indirect=True)
ALL = pytest.mark.parametrize("kind", ["fake", "paper", "overlay", "pool"], indirect=True)

# ---- leases ----------------------------------------------------------------------------------------------------------


@WORKING
async def test_each_lease_is_clean_and_at_its_base(rig: Rig) -> None:
    async with rig.worktrees.lease(rig.base) as lease:
        await rig.work(lease, "abandoned")
    member = await rig.candidate("first")
    assert await passing(rig, rig.base, "first", "abandoned") == [False, False]
    assert await passing(rig, member.commit, "first", "abandoned") == [True, False]


@ALL
async def test_checks_answer_in_the_order_of_the_criteria(rig: Rig) -> None:
    member = await rig.candidate("first")
    criteria = [rig.is_done("first"), rig.is_done("second"), rig.is_done("first")]
    async with rig.worktrees.lease(member.commit) as lease:
        checks = [await lease.check(criterion) for criterion in criteria]
    assert [(check.criterion, check.command) for check in checks] == [(each.criterion, each.run) for each in criteria]
    assert [check.passed for check in checks] == [True, False, True]


@WORKING
async def test_a_change_that_is_reported_is_pinned(rig: Rig) -> None:
    assert await rig.worktrees.pinned(RUN, FIRST, 1) is None
    async with rig.worktrees.lease(rig.base) as lease:
        await rig.work(lease, "first")
        change = await lease.commit(sign("first"), ("first",))
        assert await rig.worktrees.pinned(RUN, FIRST, 1) == change
    assert isinstance(change, Change)
    assert change.paths == ("first",)
    assert await rig.worktrees.pinned(RUN, FIRST, 2) is None


@WORKING
async def test_what_a_failed_attempt_left_is_never_taken_for_finished_work(rig: Rig) -> None:
    unfinished = replace(sign("first"), unfinished=True)
    async with rig.worktrees.lease(rig.base) as lease:
        await rig.work(lease, "first")
        assert isinstance(await lease.commit(unfinished, ("first",)), Change)
    assert await rig.worktrees.pinned(RUN, FIRST, 1) is None


@WORKING
async def test_an_attempt_that_changed_nothing_has_no_commit_and_no_pin(rig: Rig) -> None:
    await rig.leave_nothing("first")
    async with rig.worktrees.lease(rig.base) as lease:
        refused = await lease.commit(sign("first"), ())
    assert isinstance(refused, Failure)
    assert refused.kind == "empty"
    assert await rig.worktrees.pinned(RUN, FIRST, 1) is None


@ALL
async def test_a_tree_is_the_same_whatever_order_its_work_was_merged_in(rig: Rig) -> None:
    one, two = await rig.candidate("one"), await rig.candidate("two")
    forward = await rig.integrator.merge(rig.base, [one, two])
    back = await rig.integrator.merge(rig.base, [two, one])
    assert forward.tip != back.tip
    assert await rig.commits.tree(forward.tip) == await rig.commits.tree(back.tip)
    assert await rig.commits.tree(forward.tip) != await rig.commits.tree(rig.base)


# ---- landing ---------------------------------------------------------------------------------------------------------


@ALL
async def test_a_merge_puts_one_commit_each_on_the_tip_and_moves_nothing(rig: Rig) -> None:
    members = [await rig.candidate(subtask) for subtask in ("first", "second")]
    merged = await rig.integrator.merge(rig.base, members)
    assert merged.conflicts == ()
    assert [member.subtask for member in merged.landed] == ["first", "second"]
    assert len({member.commit for member in merged.landed} - {rig.base}) == 2
    assert merged.landed[-1].commit == merged.tip
    assert await rig.integrator.landed_since(RUN, rig.base) == ()
    assert await passing(rig, merged.landed[0].commit, "first", "second") == [True, False]
    assert await passing(rig, merged.tip, "first", "second") == [True, True]


@ALL
async def test_merging_nothing_is_the_tip(rig: Rig) -> None:
    merged = await rig.integrator.merge(rig.base, [])
    assert (merged.tip, merged.landed, merged.conflicts) == (rig.base, (), ())


@ALL
async def test_a_candidate_that_conflicts_is_left_out_and_the_others_are_merged(rig: Rig) -> None:
    members = [await rig.candidate("first"), await rig.clashing("clash"), await rig.candidate("third")]
    merged = await rig.integrator.merge(rig.base, members)
    assert [member.subtask for member in merged.landed] == ["first", "third"]
    assert [(member, failure.kind) for member, failure in merged.conflicts] == [(members[1], "conflict")]
    assert await passing(rig, merged.tip, "first", "third") == [True, True]


@ALL
async def test_what_has_landed_is_empty_the_second_time(rig: Rig) -> None:
    first = await rig.candidate("first")
    merged = await rig.integrator.merge(rig.base, [first])
    again = await rig.integrator.merge(merged.tip, [first])
    assert again.tip == merged.tip
    assert [(member, failure.kind) for member, failure in again.conflicts] == [(first, "empty")]


@ALL
async def test_the_branch_moves_only_from_where_it_is_thought_to_be(rig: Rig) -> None:
    one, two = await rig.candidate("one"), await rig.candidate("two")
    first, second = [await rig.integrator.merge(rig.base, [member]) for member in (one, two)]
    assert await rig.integrator.advance(RUN, new=first.tip, old=rig.base)
    assert not await rig.integrator.advance(RUN, new=second.tip, old=rig.base)
    assert await rig.integrator.landed_since(RUN, rig.base) == first.landed


@ALL
async def test_what_landed_is_read_from_the_branch_oldest_first(rig: Rig) -> None:
    members = [await rig.candidate(subtask) for subtask in ("first", "second", "third")]
    merged = await rig.integrator.merge(rig.base, members)
    assert await rig.integrator.landed_since(RUN, rig.base) == ()
    assert await rig.integrator.advance(RUN, new=merged.tip, old=rig.base)
    assert await rig.integrator.landed_since(RUN, rig.base) == merged.landed
    assert await rig.integrator.landed_since(RUN, merged.landed[0].commit) == merged.landed[1:]
    assert await rig.integrator.landed_since(RUN, merged.tip) == ()


@WORKING
async def test_a_tip_that_was_published_may_be_published_again(rig: Rig) -> None:
    merged = await rig.integrator.merge(rig.base, [await rig.candidate("first")])
    assert await rig.integrator.advance(RUN, new=merged.tip, old=rig.base)
    for _ in range(2):
        assert await rig.publish(RUN, merged.tip) is None
