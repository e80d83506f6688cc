"""Read and write one repository. This module chooses between git in process and the git program.

Trees, commits and merges of changes that do not overlap are made in process, at the cost of the changes. The program
does the rest: filters and line endings, overlapping merges, renames, patches. Callers get the same results from both,
which property tests check.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

from fleet.core.base.ids import Sha
from fleet.ports.worktrees import EffectError
from fleet.runs.crash_points import reached
from worktrees.base.process import effect_error
from worktrees.git.diff import (
    ENTRIES,
    PATCH,
    Diff,
    DiffEntry,
    DiffProgram,
    check_out_by_git,
    check_out_in_process,
    colliding_names,
    diff_by_program,
    diff_in_process,
    parse_entries,
)
from worktrees.git.merge import MergeConflict, is_on_line, merge_in_process, merge_trees
from worktrees.git.object_format import ID, REF, Commit, Person, signed_now
from worktrees.git.objects import Objects
from worktrees.git.program import PATIENCE, CommandTimeouts, Coprocess, CoprocessError, Git, text
from worktrees.git.write_tree import (
    NeedsGit,
    PathChange,
    replayed_tree,
    restored_tree,
    write_by_git,
    write_in_process,
)

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class MergedTree:
    """The tree of a merge, and its differences from both sides."""

    tree: Sha
    changed: frozenset[str]
    """The paths that the commit changed."""
    moved: tuple[str, ...]
    """The paths that differ between the merge and the tip."""


class Repository:
    """The objects and refs of one repository."""

    def __init__(self, git_dir: Path) -> None:
        self.git = Git(git_dir)
        self.objects = Objects(git_dir)
        self._entries = DiffProgram(self.git, *ENTRIES, "--no-renames")
        self._patches = DiffProgram(self.git, *PATCH)
        self.refs = Refs(self.git)

    def close(self) -> None:
        """End the long-running git programs. Blocks."""
        for part in (self._entries, self._patches, self.objects, self.refs):
            part.close()

    async def run(self, work: Callable[[], Result]) -> Result:
        """Run blocking work with the objects in one of their threads."""
        return await self.objects.run(work)

    # ---- reading

    async def commit_at(self, ref: str) -> Sha | None:
        """Return the commit of a ref."""
        stored = await self.run(partial(self.objects.find, ref))
        return stored.id if stored is not None and stored.kind == "commit" else None

    async def commit(self, id_: Sha) -> Commit:
        cached = self.objects.cached_commit(id_)
        return cached if cached is not None else await self.run(partial(self.objects.commit, id_))

    async def missing(self, ids: Iterable[Sha]) -> set[Sha]:
        """Return the ids among these that the repository does not have."""
        return set(await self.run(partial(self.objects.missing, sorted(set(ids)))))

    # ---- comparing

    async def diff(self, old: Sha, new: Sha, *, renames: bool = False) -> Diff:
        """Compare two commits or trees. Raises `EffectError` if one of them is missing."""
        if renames:
            return parse_entries(await self.git(*ENTRIES, "-M", old, new))
        return await self.run(partial(self._diff, old, new))

    def _diff(self, old: Sha, new: Sha) -> Diff:
        """Compare in process if the folders are in memory. Otherwise the program is faster."""
        before, after = self.objects.tree_of(old), self.objects.tree_of(new)
        if before == after:
            return Diff()
        if self.objects.is_cached(before) and self.objects.is_cached(after):
            return diff_in_process(self.objects, before, after)
        return diff_by_program(self._entries, before, after)

    async def patch(self, old: Sha, new: Sha, *, cap: int) -> str:
        """Return the difference as text. The middle is left out if it is longer than `cap`."""
        try:
            return text(await self.run(partial(self._short_patch, old, new, cap)))
        except CoprocessError:
            return text(await self.git(*PATCH, old, new, cap=cap))

    def _short_patch(self, old: Sha, new: Sha, cap: int) -> bytes:
        return self._patches.ask(self.objects.tree_of(old), self.objects.tree_of(new), cap=cap)

    async def added_lines(self, old: Sha, new: Sha, *, cap: int) -> bytes | None:
        """Return the patch without context lines, byte for byte, or None if it is longer than `cap`."""
        answer = await self.git.ask(*PATCH, "--unified=0", old, new, cap=cap)
        return None if answer.cut or answer.exit_code != 0 else answer.stdout

    async def colliding_names(self, old: Sha, new: Sha, paths: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """Map paths to paths that collide with them on some file systems, unless `old` had both."""
        objects = self.objects
        return await self.run(lambda: colliding_names(objects, objects.tree_of(old), objects.tree_of(new), paths))

    async def check_out(self, folder: Path, commit: Sha, files: Sequence[DiffEntry], *, converts: bool) -> None:
        """Write files of a commit into a new folder. `converts`: whether attributes may change any of them."""
        if not converts:
            with suppress(EffectError):  # a file is too large to read in process
                await self.run(partial(check_out_in_process, self.objects, folder, files))
                return
        await check_out_by_git(self.git, folder, commit, files)

    # ---- writing

    async def write_tree(self, base: Sha, changes: Sequence[PathChange]) -> Sha:
        """Write the tree of a commit with a change set applied. Removals go first. Raises `EffectError`.

        Call it after the sources were scanned, when no process can write to them any more.
        """
        with suppress(NeedsGit):
            return await self.run(partial(write_in_process, self.objects, base, changes))
        return await write_by_git(self.git, base, changes)

    async def commit_tree(self, tree: Sha, parent: Sha, *, author: Person, committer: Person, message: str) -> Sha:
        put = partial(self.objects.put_commit, tree, parent, committer=committer, message=message.encode())
        return await self.run(lambda: put(author=signed_now(author)))

    async def restore_files(self, commit: Sha, base: Sha, paths: Sequence[str], *, person: Person) -> Sha:
        """Copy a commit, with these files restored or removed as in `base`. The copy has no ref."""
        tree = await self.run(partial(restored_tree, self.objects, commit, base, paths))
        message = "With the judges of its base\n"
        return await self.commit_tree(tree, commit, author=person, committer=person, message=message)

    async def replay_commit(self, onto: Sha, diff: Diff, *, author: Person, committer: Person, message: str) -> Sha:
        """Apply a diff to a commit: the changed paths become exactly as in the diff."""
        tree = await self.run(partial(replayed_tree, self.objects, onto, diff.entries))
        return await self.commit_tree(tree, onto, author=author, committer=committer, message=message)

    async def copy_commit(
        self, commit: Sha, tree: Sha, parent: Sha, *, committer: Person, message: bytes | None = None
    ) -> Sha:
        """Copy a commit with its author, and with its message unless another is given."""
        source = await self.commit(commit)
        message = source.message if message is None else message
        put = partial(self.objects.put_commit, tree, parent, author=source.author, message=message)
        return await self.run(partial(put, committer=committer))

    async def merge(self, tip: Sha, commit: Sha) -> MergedTree | MergeConflict:
        """Return the tree of a three-way merge of a commit with one parent onto a tip."""
        tree: Sha | MergeConflict | None = await self.run(partial(self._merge_in_process, tip, commit))
        if tree is None:
            tree = await merge_trees(self.git, tip, commit)
        if isinstance(tree, MergeConflict):
            return tree
        return await self.run(partial(self._merged_tree, tip, commit, tree))

    def _merge_in_process(self, tip: Sha, commit: Sha) -> Sha | None:
        """Return None if git is needed. The parent must be the only merge base of commit and tip."""
        objects, parents = self.objects, self.objects.commit(commit).parents
        if len(parents) != 1 or not is_on_line(objects, tip, base=parents[0], unless=commit):
            return None
        return merge_in_process(objects, *(objects.commit(id_).tree for id_ in (parents[0], tip, commit)))

    def _merged_tree(self, tip: Sha, commit: Sha, tree: Sha) -> MergedTree:
        changed = self._diff(self.objects.commit(commit).parents[0], commit)
        return MergedTree(tree, frozenset(changed.paths), self._diff(tip, tree).paths)


# ---- refs ------------------------------------------------------------------------------------------------------------
# Refs of the store, moved through one long-running `update-ref`: a tenth of a millisecond instead of a new process.
#
# Every move of a branch is a compare-and-swap. The program exits at the first rejection. Then it is unclear whether the
# last command arrived, so the ref is read, and a new git process decides.


LOOSE = 200
"""The limit on loose refs before all are packed into one file. Each takes a file and a folder, and listing refs reads
them one by one."""


class Refs:
    """The refs of one repository."""

    def __init__(self, git: Git, *, loose: int = LOOSE, patience: CommandTimeouts = PATIENCE) -> None:
        self._set, self._loose = 0, loose
        self._git = git
        self._program = Coprocess(git.git_dir, "update-ref", "--stdin", patience=patience)
        self._threads = CapacityLimiter(1)

    def close(self) -> None:
        self._program.close()

    async def pin(self, ref: str, commit: Sha) -> None:
        """Set a ref to a commit, whatever its value was."""
        reached("a commit is about to be pinned")
        if not await self._update(ref, commit):
            await self._git("update-ref", ref, commit)
        reached("a commit is pinned")
        self._set += 1
        if self._set % self._loose == 0:
            await self._pack()

    async def _pack(self) -> None:
        """Pack all refs. If git can't, because another process packs them, they stay unchanged."""
        reached("refs are about to be packed")
        with suppress(EffectError):
            await self._git.ask("pack-refs", "--all")
        reached("refs are packed")

    async def swap(self, ref: str, *, new: Sha, old: Sha) -> bool:
        """Compare and swap. Return False if the ref is not at `old`."""
        reached("a branch is about to move")
        moved = await self._update(ref, new, old)
        reached("a branch was moved")
        return moved or await self._git.sha(ref) == new or await swap(self._git, ref, new=new, old=old)

    async def _update(self, ref: str, *ids: Sha) -> bool:
        """Return whether git confirmed the update. The ids are the new one and, for a compare-and-swap, the old one."""
        if re.fullmatch(REF, ref) is None or not all(re.fullmatch(ID, id_) for id_ in ids):
            raise ValueError(f"can't move {ref!r} to {' from '.join(map(repr, ids))}")
        command = f"start\nupdate {ref} {' '.join(ids)}\nprepare\ncommit\n"
        return await to_thread.run_sync(partial(self._confirmed, command.encode()), limiter=self._threads)

    def _confirmed(self, command: bytes) -> bool:
        try:
            with self._program.conversation() as program:
                program.send(command)
                return [program.read_line() for _ in range(3)] == [b"start: ok", b"prepare: ok", b"commit: ok"]
        except CoprocessError:
            return False


async def swap(git: Git, ref: str, *, new: Sha, old: Sha, reason: str = "fleet") -> bool:
    """Compare and swap a ref in a new git process. Return False if it is not at `old`."""
    answer = await git.ask("update-ref", "-m", reason, ref, new, old)
    if answer.exit_code == 0:
        return True
    if await git.sha(ref) != old:
        return False
    raise effect_error(f"can't move {ref}", text(answer.stderr))
