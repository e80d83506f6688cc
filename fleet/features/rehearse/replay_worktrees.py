"""Adapters between the engine and its worktrees that compare a rehearsal with history.

Subtasks land in the order of history, so every merged tree must match the tree of the original commit. Other trees are
rejected. If the gate fails on a tree of history, the tree lands anyway. Changes that workers are not allowed to make
(such as submodules, or names that are not UTF-8) and changes that come out different are committed like in history, and
reported.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from fleet.core.base.ids import RunId, Sha, SubtaskId, attempt_ref
from fleet.core.facts.facts import CheckRun, Failure, Member, RehearsalNote, SetupRun
from fleet.core.plans.plan import Criterion
from fleet.ports.agents import Workspace
from fleet.ports.worktrees import Change, Integrator, Lease, Merged, Signature
from worktrees.base.fs import as_text, printable
from worktrees.git.diff import Diff
from worktrees.git.object_format import author_of, committer_of, compose
from worktrees.git.repository import Repository
from worktrees.leases.run_worktrees import RunWorktrees
from worktrees.store.integrator import LineCommit

LISTED = 20
NOTED = 500  # characters of a failed gate's output
EXCUSED = "it also fails in history"

Note = Callable[[RehearsalNote, SubtaskId | None, str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class RehearsalReplay:
    """The history to replay, and the function to report notes about it."""

    worktrees: RunWorktrees
    commits: Mapping[SubtaskId, LineCommit]
    """The replayed commit of each subtask."""
    base: Sha
    """The base commit of the run."""
    note: Note
    noted: set[tuple[RehearsalNote, SubtaskId | None]]
    """The notes already reported, including those before a resume."""

    @property
    def repository(self) -> Repository:
        return self.worktrees.store.repository

    async def report(self, what: RehearsalNote, subtask: SubtaskId | None, text: str) -> None:
        """Report a note about a commit once."""
        if (what, subtask) not in self.noted:
            self.noted.add((what, subtask))
            await self.note(what, subtask, text)

    async def tree_of(self, commit: Sha) -> Sha:
        return (await self.repository.commit(commit)).tree

    async def place_of(self, tree: Sha) -> tuple[bool, SubtaskId | None]:
        """Return whether history has this tree, and after which subtask (None for the base)."""
        for id_, commit in self.commits.items():
            if commit.tree == tree:
                return True, id_
        return tree == await self.tree_of(self.base), None


@dataclass(frozen=True, slots=True)
class ReplayWorktrees:
    """Satisfies `Worktrees`."""

    replay: RehearsalReplay

    @asynccontextmanager
    async def _lease(self, base: Sha) -> AsyncIterator[Lease]:
        async with self.replay.worktrees.lease(base) as lease:
            yield ReplayLease(self.replay, lease, base)

    def lease(self, base: Sha) -> AbstractAsyncContextManager[Lease]:
        return self._lease(base)

    async def pinned(self, run: RunId, subtask: SubtaskId, attempt: int) -> Change | None:
        return await self.replay.worktrees.pinned(run, subtask, attempt)

    async def put_back(self, commit: Sha, base: Sha, paths: Sequence[str]) -> Sha:
        return await self.replay.worktrees.put_back(commit, base, paths)

    def finished_setups(self) -> tuple[SetupRun, ...]:
        return self.replay.worktrees.finished_setups()


@dataclass(frozen=True, slots=True)
class ReplayLease:
    """Satisfies `Lease`."""

    replay: RehearsalReplay
    lease: Lease
    base: Sha

    @property
    def workspace(self) -> Workspace:
        return self.lease.workspace

    # ---- checks

    async def check(self, criterion: Criterion, *, lands: bool = False) -> CheckRun:
        run = await self.lease.check(criterion, lands=lands)
        if run.passed:
            return run
        is_past, subtask = await self.replay.place_of(await self.replay.tree_of(self.base))
        if not is_past:
            return run
        async with self.replay.worktrees.lease(self.base) as fresh:
            again = await fresh.check(criterion, lands=lands)
        if again.passed:
            await self.replay.report("flaky", subtask, f"{criterion.run} failed, then passed on the same tree")
            return run.model_copy(update={"flaky": True})
        failure = await self.replay.worktrees.leases.setup.failure(self.base)
        await self.replay.report("red", subtask, failure or "\n".join(again.causes) or again.output[-NOTED:])
        return again.model_copy(update={"excused": EXCUSED})

    # ---- commits

    async def commit(self, signature: Signature, touches: Sequence[str]) -> Change | Failure:
        """Commit the worker's change, or the original change if it differs."""
        change = await self.lease.commit(signature, touches)
        if signature.unfinished:
            return change
        wanted = self.replay.commits[signature.subtask]
        diff = await self.replay.repository.diff(wanted.parent, wanted.id)
        made = Diff()
        if isinstance(change, Change):
            made = await self.replay.repository.diff(self.base, change.commit)
            if made == diff:
                return change
        why = _reason(change, made, diff)
        trouble = signature.body.partition("; ")[2]
        await self.replay.report("by_hand", signature.subtask, f"{why}; {_short(trouble)}" if trouble else why)
        return await self._commit_exactly(signature, diff)

    async def _commit_exactly(self, signature: Signature, diff: Diff) -> Change:
        """Commit and pin exactly these entries."""
        settings, repository = self.replay.worktrees.leases.box.settings, self.replay.repository
        commit = await repository.replay_commit(
            self.base,
            diff,
            author=author_of(signature, settings.git.name, settings.git.email),
            committer=committer_of(settings.git.name, settings.git.email),
            message=compose(signature),
        )
        await repository.refs.pin(attempt_ref(signature.run, signature.subtask, signature.attempt), commit)
        return Change(commit, tuple(map(as_text, diff.paths)))


@dataclass(frozen=True, slots=True)
class ReplayIntegrator:
    """Satisfies `Integrator`, and only lands trees of history."""

    replay: RehearsalReplay
    integrator: Integrator

    async def merge(self, tip: Sha, members: Sequence[Member]) -> Merged:
        landed, conflicts = list[Member](), list[tuple[Member, Failure]]()
        for member in members:
            merged = await self.integrator.merge(tip, [member])
            failure = await self._difference(member, merged.tip) if merged.landed else None
            if failure is not None:
                conflicts.append((member, failure))
                continue
            tip = merged.tip
            landed += merged.landed
            conflicts += merged.conflicts
        return Merged(tip=tip, landed=tuple(landed), conflicts=tuple(conflicts))

    async def _difference(self, member: Member, merged: Sha) -> Failure | None:
        wanted = self.replay.commits[member.subtask]
        if await self.replay.tree_of(merged) == wanted.tree:
            return None
        paths = (await self.replay.repository.diff(wanted.id, merged)).paths
        if not paths:  # the same files, but the tree objects are encoded differently
            return None
        listed = ", ".join(map(printable, paths[:LISTED]))
        summary = f"the merged tree differs from history: {_short(listed)}"
        return Failure(kind="conflict", summary=summary, evidence=listed)

    async def advance(self, run: RunId, *, new: Sha, old: Sha) -> bool:
        return await self.integrator.advance(run, new=new, old=old)

    async def landed_since(self, run: RunId, old: Sha) -> tuple[Member, ...]:
        return await self.integrator.landed_since(run, old)


def _reason(change: Change | Failure, made: Diff, wanted: Diff) -> str:
    """Explain how a worker's change differs from history."""
    if wanted.gitlinks:
        return f"it adds or moves a submodule: {_short(', '.join(map(printable, sorted(wanted.gitlinks))))}"
    if isinstance(change, Change):
        return f"the change came out different: {_differing(made, wanted)}"
    if change.kind == "empty":
        return "the change came out empty, because git ignores its files or its attributes rewrite them"
    return f"{change.summary}: {_short(change.evidence)}" if change.evidence else change.summary


def _differing(made: Diff, wanted: Diff) -> str:
    paths = {entry.path for entry in {*made.entries} ^ {*wanted.entries}}
    return _short(", ".join(map(printable, sorted(paths)[:LISTED])))


def _short(text: str) -> str:
    return " ".join(text.split())[:300]
