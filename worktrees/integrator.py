"""Puts candidates on top of the integration branch without a worktree, and moves that branch by compare-and-swap.

History stays linear, one commit a subtask, with the author, message and trailers the candidate came with. Whether a
merged tree is good is not decided here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fleet.core.facts import Failure, Member
from fleet.core.ids import RunId, Sha, tip_ref
from fleet.ports import Broken, Merged
from worktrees.git import Git, text
from worktrees.message import Person, member_of
from worktrees.scan import shown

CONFLICT = 1  # merge-tree's exit code for one
EVIDENCE = 4_000


@dataclass(frozen=True, slots=True)
class Clash:
    """Why two commits don't merge."""

    paths: tuple[str, ...]
    messages: str

    def failure(self) -> Failure:
        paths = "\n".join(map(shown, self.paths))
        return Failure(
            kind="conflict",
            summary=f"does not merge with what landed: {', '.join(map(shown, self.paths[:5]))}",
            evidence=f"{paths}\n\n{self.messages}"[:EVIDENCE],
        )


@dataclass(frozen=True, slots=True)
class StoreIntegrator:
    """The integration branch of the runs in a store."""

    git: Git
    committer: Person

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
        merged = await merge_trees(self.git, tip, commit)
        if isinstance(merged, Clash):
            return merged.failure()
        parent, tip_tree = (await self.git.line("rev-parse", f"{commit}^", f"{tip}^{{tree}}")).split()
        if merged == tip_tree:
            return Failure(
                kind="empty", summary="what landed meanwhile holds this change already; nothing is left of it"
            )
        if parent == tip:
            return commit
        return await self._copy(commit, merged, tip)

    async def _copy(self, commit: Sha, tree: Sha, parent: Sha) -> Sha:
        raw = await self.git(
            "log", "-1", "--no-show-signature", "--format=%an%x00%ae%x00%ad%x00%B", "--date=raw", commit
        )
        name, email, date, message = text(raw).split("\0", 3)
        who = {**Person(name, email).author(), "GIT_AUTHOR_DATE": date, **self.committer.committer()}
        return await self.git.line("commit-tree", tree, "-p", parent, env=who, data=message.strip().encode() + b"\n")

    async def advance(self, run: RunId, *, new: Sha, old: Sha) -> bool:
        return await swap(self.git, tip_ref(run), new=new, old=old)

    async def tip(self, run: RunId) -> Sha:
        tip = await self.git.sha(tip_ref(run))
        if tip is None:
            raise Broken(Failure(kind="infrastructure", summary=f"the store has no integration branch for {run}"))
        return tip

    async def landed_since(self, run: RunId, old: Sha) -> tuple[Member, ...]:
        tip = await self.tip(run)
        walk = ("log", "-z", "--reverse", "--first-parent", "--no-show-signature", "--format=%H%n%B")
        entries = text(await self.git(*walk, f"{old}..{tip}")).split("\0")
        parted = (entry.partition("\n") for entry in entries if entry.strip())
        members = (member_of(commit.strip(), message, run) for commit, _, message in parted)
        return tuple(member for member in members if member is not None)


async def swap(git: Git, ref: str, *, new: Sha, old: Sha, why: str = "fleet") -> bool:
    """Compare-and-swap of a ref; False when it is not where we thought."""
    answer = await git.ask("update-ref", "-m", why, ref, new, old)
    if answer.exit_code == 0:
        return True
    if await git.sha(ref) != old:
        return False
    raise Broken(Failure(kind="infrastructure", summary=f"{ref} can't be moved", evidence=text(answer.stderr)))


async def merge_trees(git: Git, ours: Sha, theirs: Sha) -> Sha | Clash:
    """The tree of a three-way merge, or what is in its way."""
    answer = await git.ask("merge-tree", "--write-tree", "-z", "--name-only", "--messages", ours, theirs)
    if answer.exit_code not in {0, CONFLICT}:
        raise Broken(Failure(kind="infrastructure", summary="git merge-tree failed", evidence=text(answer.stderr)))
    tree, _, rest = answer.stdout.partition(b"\0")
    if answer.exit_code == 0:
        return text(tree).strip()
    names, _, said = rest.partition(b"\0\0")
    paths = tuple(dict.fromkeys(text(name) for name in names.split(b"\0") if name))
    return Clash(paths, _messages(said))


def _messages(raw: bytes) -> str:
    """Git's messages come as count, paths, kind, message; a person reads only the last."""
    parts, lines, at = raw.split(b"\0"), list[str](), 0
    while at < len(parts) and parts[at].isdigit():
        at += int(parts[at]) + 2
        if at < len(parts):
            lines.append(text(parts[at]).strip())
        at += 1
    return "\n".join(line for line in lines if line.startswith("CONFLICT")) or "\n".join(lines)
