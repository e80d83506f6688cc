"""Puts candidates on top of the integration branch without a worktree, and moves that branch by compare-and-swap.

History stays linear, one commit a subtask, with the author, message and trailers the candidate came with. Changes that
do not meet are folded in process; the others are git's. Whether a merged tree is good is not decided here, only that
it differs from the tip in nothing but what the subtask changed.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

from fleet.core.facts import Failure, Member
from fleet.core.ids import RunId, Sha, aside_ref, tip_ref
from fleet.ports import Broken, Merged
from worktrees.clash import Clash, conflict, merge_trees
from worktrees.commits import touched_between
from worktrees.fold import differing, fold, on_the_line
from worktrees.git import Git, fields, text
from worktrees.message import Person, member_of
from worktrees.objects import Commit, Objects
from worktrees.scan import shown
from worktrees.store import Store

LISTED = 50
NOTHING_LEFT = Failure(kind="empty", summary="what landed meanwhile holds this change already; nothing is left of it")


@dataclass(frozen=True, slots=True)
class StoreIntegrator:
    """The integration branch of the runs in a store."""

    store: Store
    committer: Person

    @property
    def git(self) -> Git:
        return self.store.git

    @property
    def objects(self) -> Objects:
        return self.store.objects

    async def merge(self, tip: Sha, members: Sequence[Member]) -> Merged:
        """Who does not merge is left out with the reason; the others go on."""
        now, landed, left_out = tip, list[Member](), list[tuple[Member, Failure]]()
        for member in members:
            put = await self._put(now, member.commit)
            if isinstance(put, Failure):
                left_out.append((member, put))
            else:
                now = put
                landed.append(member.model_copy(update={"commit": now}))
        return Merged(tip=now, landed=tuple(landed), conflicts=tuple(left_out))

    async def _put(self, tip: Sha, commit: Sha) -> Sha | Failure:
        if self.objects.by_git is None:
            put = await self.objects.run(partial(self._fold, tip, commit))
            if put is not None:
                return put
        return await self._merge(tip, commit)

    def _fold(self, tip: Sha, commit: Sha) -> Sha | Failure | None:
        """In process; None where it takes git. Its base has to be the one merge base of candidate and tip."""
        objects = self.objects
        candidate, onto = objects.commit(commit), objects.commit(tip)
        if len(candidate.parents) != 1 or not candidate.plain:
            return None
        [parent] = candidate.parents
        if parent == tip:
            return NOTHING_LEFT if candidate.tree == onto.tree else commit
        if not on_the_line(objects, tip, base=parent, unless=commit):
            return None
        base = objects.commit(parent).tree
        merged = fold(objects, base, onto.tree, candidate.tree)
        if merged is None:
            return None
        if merged == onto.tree:
            return NOTHING_LEFT
        changed = {each.path for each in differing(objects, base, candidate.tree)}
        strays = [each.path for each in differing(objects, onto.tree, merged) if each.path not in changed]
        if strays:
            return _astray([shown(path.decode("utf-8", "surrogateescape")) for path in strays])
        return self._write(candidate, merged, tip)

    def _write(self, candidate: Commit, tree: Sha, parent: Sha) -> Sha:
        return self.objects.put_commit(
            tree, parent, author=candidate.author, committer=self.committer, message=candidate.message
        )

    async def _merge(self, tip: Sha, commit: Sha) -> Sha | Failure:
        """By git."""
        parent, tip_tree = (await self.git.line("rev-parse", f"{commit}^", f"{tip}^{{tree}}")).split()
        merged = await merge_trees(self.git, tip, commit)
        if isinstance(merged, Clash):
            return await conflict(self.git, merged, base=parent, tip=tip)
        if merged == tip_tree:
            return NOTHING_LEFT
        if parent == tip:
            return commit
        strays = await self._strays(parent, commit, tip, merged)
        return _astray(strays) if strays else await self._copy(commit, merged, tip)

    async def _strays(self, base: Sha, commit: Sha, tip: Sha, merged: Sha) -> list[str]:
        """Paths in which a merge differs from the tip although the candidate did not change them.

        One exception: what the candidate changed follows a file to the name that landed work gave it.
        """
        changed = {touch.path for touch in await touched_between(self.git, base, commit)}
        moved = [touch.path for touch in await touched_between(self.git, tip, merged)]
        strays = [path for path in moved if path not in changed]
        if strays:
            followed = await self._renamed(changed, base, tip)
            strays = [path for path in strays if path not in followed]
        return [shown(path) for path in strays]

    async def _renamed(self, paths: Collection[str], base: Sha, tip: Sha) -> set[str]:
        """Where the tip has files that the base had at these paths."""
        raw = fields(await self.git("diff-tree", "-r", "-z", "-M", "--diff-filter=R", "--name-status", base, tip))
        return {new for _, old, new in zip(raw[::3], raw[1::3], raw[2::3], strict=True) if old in paths}

    async def _copy(self, commit: Sha, tree: Sha, parent: Sha) -> Sha:
        raw = await self.git(
            "log", "-1", "--no-show-signature", "--format=%an%x00%ae%x00%ad%x00%B", "--date=raw", commit
        )
        name, email, date, message = text(raw).split("\0", 3)
        who = {**Person(name, email).author(), "GIT_AUTHOR_DATE": date, **self.committer.committer()}
        return await self.git.line("commit-tree", tree, "-p", parent, env=who, data=message.strip().encode() + b"\n")

    async def advance(self, run: RunId, *, new: Sha, old: Sha) -> bool:
        return await self.store.refs.swap(tip_ref(run), new=new, old=old)

    async def tip(self, run: RunId) -> Sha:
        tip = await self.objects.run(partial(self.objects.find, tip_ref(run)))
        if tip is None or tip.kind != "commit":
            raise Broken(Failure(kind="infrastructure", summary=f"the store has no integration branch for {run}"))
        return tip.id

    async def landed_since(self, run: RunId, old: Sha) -> tuple[Member, ...]:
        """What a hand put there, or took away, is no landing: the branch goes back, and that is kept beside it."""
        there = await self.objects.run(partial(self.objects.find, tip_ref(run)))
        if there is not None and there.id == old:
            return ()
        if there is not None:
            members = await landed_since(self.git, run, old=old, tip=there.id)
            above = await self.git.ask("rev-list", "--count", "--first-parent", f"{old}..{there.id}")
            if members and text(above.stdout).strip() == str(len(members)):
                return members
            await self.store.refs.pin(aside_ref(run, there.id), there.id)
        await self.store.refs.pin(tip_ref(run), old)
        return ()


async def landed_since(git: Git, run: RunId, *, old: Sha, tip: Sha) -> tuple[Member, ...]:
    """What stands on an integration branch above `old`, oldest first, read from the trailers."""
    if old == tip:
        return ()
    walk = ("log", "-z", "--reverse", "--first-parent", "--no-show-signature", "--format=%H%n%B")
    entries = text(await git(*walk, f"{old}..{tip}")).split("\0")
    parted = (entry.partition("\n") for entry in entries if entry.strip())
    members = (member_of(commit.strip(), message, run) for commit, _, message in parted)
    return tuple(member for member in members if member is not None)


def _astray(paths: Sequence[str]) -> Failure:
    more = [f"... and {len(paths) - LISTED} more"] if len(paths) > LISTED else []
    return Failure(
        kind="conflict",
        summary=f"merging it would change files that it did not change: {', '.join(paths[:5])}",
        evidence="\n".join((*paths[:LISTED], *more)),
    )
