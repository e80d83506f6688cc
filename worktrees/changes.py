"""A known change set on top of a base becomes a tree: in process, at the cost of what changed, or by git where it must.

The change set comes from whoever knows it: the upper layer of an overlay, or one `git status` of a slot. Git's filters
and line endings are not rebuilt here: where an attribute file on the way to a changed path could matter, and in
repositories with SHA-256 ids, git itself makes the tree, in an index and a folder of its own.
"""

import os
import shutil
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from anyio import to_thread

from fleet.core.facts import Failure
from fleet.core.ids import Sha
from fleet.ports import Broken
from worktrees.git import Git
from worktrees.objects import TREE, Node, Objects, Tree

FILE, PROGRAM, LINK = "100644", "100755", "120000"
ATTRIBUTES = b".gitattributes"
DEEPEST = 200  # folders; deeper ones are git's
ENDS = frozenset({"text", "eol", "crlf"})
REWRITING = frozenset({"filter", "ident", "working-tree-encoding"})
Rewrites = Literal["nothing", "line endings", "contents"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A path that is not as the base has it."""

    path: bytes
    """Relative, with forward slashes."""
    mode: str = ""
    source: Path | None = None
    """Where its content lies; None where the path, file or folder, is gone."""


class _ForGit(Exception):  # noqa: N818 - it is an answer
    """Only git knows what this change comes to; the message says why."""


def entry_at(path: bytes, source: Path) -> Entry:
    """What lies at `source` now, as the new content of `path`. A folder there is no file, so the path is gone."""
    try:
        mode = source.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return Entry(path)
    if stat.S_ISLNK(mode):
        return Entry(path, LINK, source)
    if stat.S_ISREG(mode):
        return Entry(path, PROGRAM if mode & stat.S_IXUSR else FILE, source)
    return Entry(path)


def entries_in(root: Path, paths: Iterable[bytes]) -> tuple[Entry, ...]:
    """Entries for paths of a worktree. What lies behind a link is not in the worktree, so it is gone."""
    real: dict[bytes, bool] = {b"": True}

    def is_real(folder: bytes) -> bool:
        if folder not in real:
            at = root / os.fsdecode(folder)
            real[folder] = is_real(folder.rpartition(b"/")[0]) and not at.is_symlink() and at.is_dir()
        return real[folder]

    return tuple(
        entry_at(path, root / os.fsdecode(path)) if is_real(path.rpartition(b"/")[0]) else Entry(path) for path in paths
    )


async def commit_change(git: Git, objects: Objects, base: Sha, entries: Sequence[Entry]) -> Sha:
    """The tree of the commit `base` with a change set on top. What is gone goes first. Raises `Broken`.

    Called when nothing can write to the sources any more, and after they were scanned.
    """
    if objects.by_git is None:
        with suppress(_ForGit):
            return await objects.run(partial(_in_process, git, objects, base, tuple(entries)))
    return await _by_git(git, base, entries)


def why_git(git: Git, objects: Objects, base: Sha, entries: Sequence[Entry]) -> str | None:
    """Why a change set is left to git, where it is: what `commit_change` goes by. Blocks, and reads no source."""
    if objects.by_git is not None:
        return objects.by_git
    try:
        _rewrites(git, objects, objects.commit(base).tree, entries)
    except _ForGit as why:
        return str(why)
    return None


# ---- in process ------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Folder:
    """What changes below a folder."""

    entries: dict[bytes, "Entry | _Folder"] = field(default_factory=dict)
    holds: bool = False
    """Whether anything below it is there, and not just gone."""
    fresh: bool = False
    """Whether what the base has there is gone."""


def _in_process(git: Git, objects: Objects, base: Sha, entries: Sequence[Entry]) -> Sha:
    tree = objects.commit(base).tree
    crlf_matters = _rewrites(git, objects, tree, entries) == "line endings"
    return objects.put_tree(_applied(objects, objects.tree(tree), _by_folder(entries), crlf_matters=crlf_matters))


def _by_folder(entries: Iterable[Entry]) -> _Folder:
    """The change set as folders. Raises `ValueError` for one that no file system could hold."""
    top = _Folder()
    for entry in sorted(entries, key=lambda each: each.source is not None):
        *folders, name = _parts(entry.path)
        at = top
        for folder in folders:
            at.holds = at.holds or entry.source is not None
            there = at.entries.get(folder)
            if isinstance(there, Entry):
                if there.source is not None:
                    raise ValueError(f"{entry.path!r} lies below a file")
                there = _Folder(fresh=True)
            at.entries[folder] = at = there or _Folder()
        at.holds = at.holds or entry.source is not None
        there = at.entries.get(name)
        if isinstance(there, _Folder) and there.holds:
            raise ValueError(f"{entry.path!r} is a file and a folder")
        at.entries[name] = entry
    return top


def _parts(path: bytes) -> list[bytes]:
    parts = path.split(b"/")
    if any(part in {b"", b".", b".."} or part.lower() == b".git" or b"\0" in part for part in parts):
        raise ValueError(f"{path!r} can't be in a tree")
    if len(parts) > DEEPEST:
        raise _ForGit(f"a path is more than {DEEPEST} folders deep")
    return parts


def _applied(objects: Objects, base: Tree, folder: _Folder, *, crlf_matters: bool) -> Tree:
    new: dict[bytes, Node] = {} if folder.fresh else dict(base)
    for name, change in folder.entries.items():
        if isinstance(change, Entry):
            if change.source is None:
                new.pop(name, None)
            else:
                data = content(change, change.source)
                if crlf_matters and change.mode != LINK and b"\r\n" in data:
                    raise _ForGit("line endings would be changed")
                new[name] = (change.mode.encode(), bytes.fromhex(objects.put("blob", data)))
            continue
        there = new.get(name)
        is_folder = there is not None and there[0] == TREE
        if not is_folder and not change.holds:
            if change.fresh:
                new.pop(name, None)
            continue  # something is gone from a folder that was none
        old = objects.tree(there[1].hex()) if there is not None and is_folder else {}
        below = _applied(objects, old, change, crlf_matters=crlf_matters)
        if below:
            new[name] = (TREE, bytes.fromhex(objects.put_tree(below)))
        else:
            new.pop(name, None)
    return new


def content(entry: Entry, source: Path) -> bytes:
    """What lies at the source of an entry. A link is what it says."""
    try:
        if entry.mode == LINK:
            return os.readlink(os.fsencode(source))  # noqa: PTH115 - a Path would tidy up what the link says
        fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise _broken(f"{source} is no file")
            return file.read()
    except OSError as error:
        raise _broken(f"{source} can't be read: {error.strerror}") from error


# ---- attributes ------------------------------------------------------------------------------------------------------


def _rewrites(git: Git, objects: Objects, tree: Sha, entries: Iterable[Entry]) -> Rewrites:
    """What git would do to the contents of a change set, by the attribute files on the way to each of its paths."""
    found: Rewrites = "nothing"
    with suppress(FileNotFoundError):
        found = _worst(found, rewrites((git.git_dir / "info" / "attributes").read_bytes()))
    folders: dict[bytes, None] = {}
    for entry in entries:
        folder, _, name = entry.path.rpartition(b"/")
        if name.lower() == ATTRIBUTES:
            raise _ForGit("attributes are changed")
        if entry.source is not None:
            folders[folder] = None
    seen: set[tuple[bytes, bytes]] = set()
    for folder in folders:
        at: Tree | None = objects.tree(tree)
        for part in (*folder.split(b"/"), b"") if folder else (b"",):
            node = at.get(ATTRIBUTES) if at is not None else None
            if node is not None and node not in seen:
                seen.add(node)
                found = _worst(found, rewrites(objects.blob(node[1].hex())))
            below = at.get(part) if at is not None else None
            at = objects.tree(below[1].hex()) if below is not None and below[0] == TREE else None
    if found == "contents":
        raise _ForGit("attributes name a filter, an encoding or keywords")
    return found


def rewrites(attributes: bytes) -> Rewrites:
    """The most that a file of attributes can do to contents, whatever paths it does it to."""
    found: Rewrites = "nothing"
    for line in attributes.decode("utf-8", "replace").splitlines():
        if line.lstrip().startswith("#"):
            continue
        names = {word.partition("=")[0] for word in line.split()[1:]}
        if names & REWRITING:
            return "contents"
        if names & ENDS:
            found = "line endings"
    return found


def _worst(one: Rewrites, other: Rewrites) -> Rewrites:
    order: tuple[Rewrites, ...] = ("nothing", "line endings", "contents")
    return max(one, other, key=order.index)


# ---- by git ----------------------------------------------------------------------------------------------------------


async def _by_git(git: Git, base: Sha, entries: Sequence[Entry]) -> Sha:
    """In an index and a folder that hold nothing but this change. No filter is configured that could run."""
    with TemporaryDirectory(prefix="change-", dir=git.git_dir.parent) as name:
        room = Path(name)
        env = {"GIT_INDEX_FILE": str(room / "index"), "GIT_WORK_TREE": str(room / "tree")}
        await to_thread.run_sync(_lay_out, room / "tree", entries)
        await git("read-tree", base, env=env)
        from_stdin = ("--pathspec-from-file=-", "--pathspec-file-nul")
        gone = b"".join(entry.path + b"\0" for entry in entries if entry.source is None)
        if gone:
            await git("rm", "-r", "-f", "--cached", "--quiet", "--ignore-unmatch", *from_stdin, env=env, data=gone)
        there = b"".join(entry.path + b"\0" for entry in entries if entry.source is not None)
        if there:
            await git("update-index", "--add", "--replace", "-z", "--stdin", env=env, data=there)
        return await git.line("write-tree", env=env)


def _lay_out(tree: Path, entries: Sequence[Entry]) -> None:
    tree.mkdir()
    for entry in entries:
        if entry.source is None:
            continue
        goal = tree / os.fsdecode(entry.path)
        goal.parent.mkdir(parents=True, exist_ok=True)
        if entry.mode == LINK:
            os.symlink(os.readlink(entry.source), goal)  # noqa: PTH115, PTH211 - as above
        else:
            shutil.copyfile(entry.source, goal, follow_symlinks=False)
            goal.chmod(0o755 if entry.mode == PROGRAM else 0o644)


def _broken(summary: str) -> Broken:
    return Broken(Failure(kind="infrastructure", summary=summary))
