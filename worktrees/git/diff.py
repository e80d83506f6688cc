"""Differences between two trees: entries, compared in process or by git, and patches, made by git.

The program echoes a random line that is not an object, which marks the end of an answer. Because it is random, no path
and no line of a patch equals it.
"""

import os
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory

from anyio import to_thread

from fleet.core.base.ids import Sha
from fleet.core.base.paths import folders_above
from worktrees.base.fs import create_file, make_folder
from worktrees.base.process import effect_error
from worktrees.git.object_format import (
    ABSENT,
    ATTRIBUTES,
    EXECUTABLE,
    GITLINK,
    LINK,
    Node,
    Tree,
    folder_node,
    is_folder,
    node_id,
)
from worktrees.git.objects import Objects
from worktrees.git.program import PATIENCE, CommandTimeouts, Coprocess, CoprocessError, Git, fields

ENTRIES = ("diff-tree", "-r", "-z", "--raw")
PATCH = ("diff-tree", "-p", "-r", "--no-renames", "--no-ext-diff", "--no-textconv")


@dataclass(frozen=True, slots=True)
class DiffEntry:
    """A path that differs between two trees: a file, a link or a submodule, never a folder."""

    path: str
    mode: str
    """The mode in the new tree, as git writes it."""
    id: Sha
    """Zeros if the path is removed."""
    renamed_from: str = ""

    @property
    def is_removed(self) -> bool:
        return self.mode == ABSENT


@dataclass(frozen=True, slots=True)
class Diff:
    """The paths that differ between two trees, in git's order."""

    entries: tuple[DiffEntry, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(entry.path for entry in self.entries)

    @property
    def removed(self) -> tuple[str, ...]:
        return tuple(entry.path for entry in self.entries if entry.is_removed)

    @property
    def present(self) -> tuple[str, ...]:
        return tuple(entry.path for entry in self.entries if not entry.is_removed)

    @property
    def files(self) -> tuple[DiffEntry, ...]:
        """The new or changed files and links."""
        return tuple(entry for entry in self.entries if entry.mode not in {ABSENT, GITLINK})

    @property
    def gitlinks(self) -> frozenset[str]:
        return frozenset(entry.path for entry in self.entries if entry.mode == GITLINK)

    @property
    def changes_attributes(self) -> bool:
        """Whether files may differ in the worktree although they are the same to git."""
        return any(entry.path.endswith(ATTRIBUTES) for entry in self.entries)


class DiffProgram:
    """A long-running `git diff-tree`. Blocks."""

    def __init__(self, git: Git, *options: str, patience: CommandTimeouts = PATIENCE) -> None:
        self._program = Coprocess(git.git_dir, *options, "--stdin", patience=patience)
        self._end = f"end {token_hex(8)}\n".encode()

    def close(self) -> None:
        self._program.close()

    def ask(self, old: Sha, new: Sha, *, cap: int | None = None) -> bytes:
        """Return the difference of two trees. Raises `CoprocessError`, also if the answer is longer than `cap`."""
        question = f"{old} {new}\n".encode()

        def is_complete(answer: bytearray) -> bool:
            if cap is not None and len(answer) > len(question) + cap + len(self._end):
                raise CoprocessError("diff-tree", "its answer is too long")
            return answer.endswith(self._end)

        with self._program.conversation() as program:
            program.send(question + self._end)
            answer = program.read_until(is_complete)
        if not answer.startswith(question):
            raise effect_error(f"tree {old} or {new} is not in the store")
        return answer[len(question) : -len(self._end)]


def diff_by_program(program: DiffProgram, old: Sha, new: Sha) -> Diff:
    """Return the difference of two trees, from a program with `ENTRIES`."""
    try:
        return parse_entries(program.ask(old, new))
    except CoprocessError:  # killed while it was idle, or in the middle
        return parse_entries(program.ask(old, new))


def parse_entries(answer: bytes) -> Diff:
    """Parse the answer of `--raw -z`: modes, ids and a letter, then the path, or two paths for a rename."""
    parts, entries = iter(fields(answer)), list[DiffEntry]()
    for raw in parts:
        _, mode, _, id_, letter = raw.split(" ")
        first = next(parts)
        path, renamed_from = (next(parts), first) if letter.startswith("R") else (first, "")
        entries.append(DiffEntry(path, mode, Sha(id_), renamed_from))
    return Diff(tuple(entries))


def diff_in_process(objects: Objects, old: Sha, new: Sha) -> Diff:
    """Return the difference of two trees, folder by folder. Blocks."""
    compared = sorted(_compare(objects, objects.tree(old), objects.tree(new)))
    return Diff(tuple(_entry(path, node, len(old)) for path, node in compared))


def _entry(path: bytes, node: Node | None, digits: int) -> DiffEntry:
    mode, id_ = (node[0].decode(), node_id(node)) if node is not None else (ABSENT, Sha("0" * digits))
    return DiffEntry(os.fsdecode(path), mode, id_)


def _compare(objects: Objects, old: Tree, new: Tree, folder: bytes = b"") -> Iterator[tuple[bytes, Node | None]]:
    """Return the paths that differ, with their new files."""
    for name in differing_names(old, new):
        path, before, after = folder + name, old.get(name), new.get(name)
        old_file, new_file = (None if is_folder(node) else node for node in (before, after))
        if old_file is not None or new_file is not None:
            yield path, new_file
        if is_folder(before) or is_folder(after):
            yield from _compare(objects, objects.tree_at(before), objects.tree_at(after), path + b"/")


def differing_names(before: Tree, after: Tree) -> list[bytes]:
    """Names that only one of two folders has, or that differ between them."""
    names = [name for name, node in after.items() if before.get(name) != node]
    return names + [name for name in before if name not in after]


# ---- check out -------------------------------------------------------------------------------------------------------
# Writes files of a commit into a new folder: in process, at the cost of these files, or by git if necessary.


def check_out_in_process(objects: Objects, folder: Path, files: Sequence[DiffEntry]) -> None:
    """Raises `EffectError` if a file is too large to read in process. Blocks."""
    make_folder(folder)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def make_folders() -> None:
        for path in dict.fromkeys(above for file in files for above in folders_above(file.path)):
            os.mkdir(path, dir_fd=fd)

    contents = objects.blobs([file.id for file in files], make_folders)
    try:
        for file, content in zip(files, contents, strict=True):
            if file.mode == LINK:
                os.symlink(content, os.fsencode(file.path), dir_fd=fd)
            else:
                create_file(file.path, content, mode=0o777 if file.mode == EXECUTABLE else 0o666, within=fd)
    finally:
        os.close(fd)


async def check_out_by_git(git: Git, folder: Path, commit: Sha, files: Sequence[DiffEntry]) -> None:
    with TemporaryDirectory(prefix="fleet-index-") as name:
        env = {"GIT_INDEX_FILE": str(Path(name, "index"))}
        await git("read-tree", commit, env=env)
        await to_thread.run_sync(make_folder, folder)
        paths = b"".join(os.fsencode(file.path) + b"\0" for file in files)
        await Git(git.git_dir, folder)("checkout-index", "-z", "--stdin", "--force", env=env, data=paths)


# ---- colliding names -------------------------------------------------------------------------------------------------
# Paths that collide on some file systems: a checkout there would have one file where the commit has two.
#
# Such names differ in case, or in Unicode composition. Only added names are compared with the other names in their
# folders. A repository that already has colliding names may keep them.


def colliding_names(objects: Objects, before: Sha, after: Sha, paths: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Map each path of a tree that collides with another path to that path, unless the tree before had both."""

    @cache
    def groups(folder: str) -> dict[str, list[str]]:
        """Group the names in a folder that collide."""
        by_key: dict[str, list[str]] = defaultdict(list)
        for name in _names(objects, after, folder):
            by_key[_collision_key(name)].append(name)
        return by_key

    pairs: dict[tuple[str, str], None] = {}
    for path in paths:
        folder = ""
        for name in path.split("/"):
            others = [other for other in groups(folder)[_collision_key(name)] if other != name]
            if others and not {name, *others} <= set(_names(objects, before, folder)):
                pairs[folder + name, folder + others[0]] = None
            folder += f"{name}/"
    return tuple(pairs)


def _collision_key(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _names(objects: Objects, tree: Sha, folder: str) -> list[str]:
    """The names in a folder of a tree, or none if the folder does not exist. `folder` ends with a slash."""
    entries = objects.tree_at(folder_node(tree))
    for part in folder.split("/")[:-1]:
        entries = objects.tree_at(entries.get(os.fsencode(part)))
    return [os.fsdecode(name) for name in entries]
