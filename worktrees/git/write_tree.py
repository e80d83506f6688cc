"""Write the tree of a base with a change set applied: in process, at the cost of the change, or by git.

The change set comes from the upper layer of an overlay, or from `git status` in a slot. Git's filters and line endings
are not reimplemented. If an attribute file above a changed path could matter, git itself writes the tree, in a separate
index and folder.
"""

import os
import shutil
import stat
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from anyio import to_thread

from fleet.core.base.ids import Sha
from worktrees.base.process import effect_error
from worktrees.git.diff import DiffEntry
from worktrees.git.object_format import (
    ATTRIBUTES,
    DEEPEST,
    EXECUTABLE,
    FILE,
    LINK,
    Node,
    Tree,
    folder_node,
    is_folder,
    node_id,
)
from worktrees.git.objects import Objects
from worktrees.git.program import Git

REWRITING = frozenset({"text", "eol", "crlf", "filter", "ident", "working-tree-encoding"})


@dataclass(frozen=True, slots=True)
class PathChange:
    """A path that differs from the base."""

    path: bytes
    """Relative, with forward slashes."""
    mode: str = ""
    source: Path | None = None
    """The file or link with the content, or None if the path (file or folder) is removed."""


class NeedsGit(Exception):  # noqa: N818 - it is an answer
    """The reason why only git can write the tree of this change."""


def change_at(path: bytes, source: Path) -> PathChange:
    """Return the change of `path` to the current content of `source`. A folder counts as removed."""
    try:
        mode = source.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return PathChange(path)
    if stat.S_ISLNK(mode):
        return PathChange(path, LINK, source)
    if stat.S_ISREG(mode):
        return PathChange(path, EXECUTABLE if mode & stat.S_IXUSR else FILE, source)
    return PathChange(path)


def changes_in(root: Path, paths: Iterable[bytes]) -> tuple[PathChange, ...]:
    """Return the changes at paths of a worktree. Paths behind a link are not in the worktree, so they are removed."""
    real: dict[bytes, bool] = {b"": True}

    def is_real(folder: bytes) -> bool:
        if folder not in real:
            full = root / os.fsdecode(folder)
            real[folder] = is_real(folder.rpartition(b"/")[0]) and not full.is_symlink() and full.is_dir()
        return real[folder]

    return tuple(
        change_at(path, root / os.fsdecode(path)) if is_real(path.rpartition(b"/")[0]) else PathChange(path)
        for path in paths
    )


# ---- in process ------------------------------------------------------------------------------------------------------


def write_in_process(objects: Objects, base: Sha, changes: Sequence[PathChange]) -> Sha:
    """Raises `NeedsGit`, and `ValueError` for a change set that is impossible on a file system."""
    root = objects.tree_of(base)
    _check_attributes(objects, root, changes)
    split = [(change, _split(change.path)) for change in changes]
    nodes = [(parts, _node(objects, change)) for change, parts in split]
    return objects.put_tree(_with_changes(objects, objects.tree(root), nodes))


def _split(path: bytes) -> list[bytes]:
    parts = path.split(b"/")
    if any(part in {b"", b".", b".."} or part.lower() == b".git" or b"\0" in part for part in parts):
        raise ValueError(f"{path!r} is not a valid path in a tree")
    if len(parts) > DEEPEST:
        raise NeedsGit(f"a path is more than {DEEPEST} folders deep")
    return parts


def _node(objects: Objects, change: PathChange) -> Node | None:
    """Write the content of a changed file and return its entry, or None if it is removed."""
    if change.source is None:
        return None
    return change.mode.encode(), bytes.fromhex(objects.put("blob", source_content(change, change.source)))


def _with_changes(objects: Objects, tree: Tree, changes: Iterable[tuple[Sequence[bytes], Node | None]]) -> Tree:
    """Apply the changes below a folder and write its subfolders. Empty folders are dropped."""
    nodes, files = dict(tree), dict[bytes, Node]()
    below: dict[bytes, list[tuple[Sequence[bytes], Node | None]]] = defaultdict(list)
    for (name, *rest), node in changes:
        if rest:
            below[name].append((rest, node))
        elif node is None:
            nodes.pop(name, None)
        elif name in files:
            raise ValueError(f"{name!r} appears twice as a file")
        else:
            files[name] = node
    for name, inner in below.items():
        if name in files and any(node is not None for _, node in inner):
            raise ValueError(f"{name!r} is both a file and a folder")
        entries = _with_changes(objects, objects.tree_at(nodes.get(name)), inner)
        if entries:
            nodes[name] = folder_node(objects.put_tree(entries))
        elif is_folder(nodes.get(name)):
            del nodes[name]
    return nodes | files


def restored_tree(objects: Objects, commit: Sha, base: Sha, paths: Iterable[str]) -> Sha:
    """Return the tree of a commit with these files as in `base`. Files missing in `base` are removed."""
    nodes: list[tuple[Sequence[bytes], Node | None]] = []
    for path in paths:
        parts = os.fsencode(path).split(b"/")
        node = _node_at(objects, base, parts)
        if not is_folder(node) and (node is not None or not is_folder(_node_at(objects, commit, parts))):
            nodes.append((parts, node))
    return objects.put_tree(_with_changes(objects, objects.tree(objects.tree_of(commit)), nodes))


def _node_at(objects: Objects, commit: Sha, parts: Sequence[bytes]) -> Node | None:
    node: Node | None = folder_node(objects.tree_of(commit))
    for part in parts:
        node = objects.tree_at(node).get(part)
    return node


def replayed_tree(objects: Objects, onto: Sha, entries: Iterable[DiffEntry]) -> Sha:
    """Return the tree of a commit with these paths as in the entries, of any kind."""
    nodes = [
        (_split(os.fsencode(each.path)), None if each.is_removed else (each.mode.encode(), bytes.fromhex(each.id)))
        for each in entries
    ]
    return objects.put_tree(_with_changes(objects, objects.tree(objects.tree_of(onto)), nodes))


def source_content(change: PathChange, source: Path) -> bytes:
    """Return the content that git would store for a change. For a link that is its destination."""
    try:
        if change.mode == LINK:
            return os.readlink(os.fsencode(source))  # noqa: PTH115 - a Path would normalize the destination
        fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise effect_error(f"{source} is not a file")
            return file.read()
    except OSError as error:
        raise effect_error(f"can't read {source}: {error.strerror}") from error


def _check_attributes(objects: Objects, root: Sha, changes: Iterable[PathChange]) -> None:
    """Raises `NeedsGit` if an attribute file above a changed path could rewrite contents."""
    if any(change.path.rpartition(b"/")[2].lower() == ATTRIBUTES.encode() for change in changes):
        raise NeedsGit("attributes are changed")
    folders = {change.path.rpartition(b"/")[0] for change in changes if change.source is not None}
    checked: set[Node] = set()
    for folder in folders:
        node: Node | None = folder_node(root)
        for name in (*folder.split(b"/"), b""):
            entries = objects.tree_at(node)
            rules, node = entries.get(ATTRIBUTES.encode()), entries.get(name)
            if rules is None or rules in checked or is_folder(rules):
                continue
            checked.add(rules)
            if may_rewrite(objects.blob(node_id(rules))):
                raise NeedsGit("attributes name line endings, a filter, an encoding or keywords")


def may_rewrite(attributes: bytes) -> bool:
    """Whether an attribute file has an attribute that makes git change contents, for any path."""
    lines = attributes.decode("utf-8", "replace").splitlines()
    words = (word for line in lines if not line.lstrip().startswith("#") for word in line.split()[1:])
    return any(word.partition("=")[0] in REWRITING for word in words)


# ---- by git ----------------------------------------------------------------------------------------------------------


async def write_by_git(git: Git, base: Sha, changes: Sequence[PathChange]) -> Sha:
    """Use a separate index and a folder with only this change. No configured filter can run."""
    with TemporaryDirectory(prefix="change-", dir=git.git_dir.parent) as name:
        folder = Path(name)
        env = {"GIT_INDEX_FILE": str(folder / "index"), "GIT_WORK_TREE": str(folder / "tree")}
        await to_thread.run_sync(_lay_out, folder / "tree", changes)
        await git("read-tree", base, env=env)
        removed = b"".join(change.path + b"\0" for change in changes if change.source is None)
        if removed:
            options = ("--cached", "--quiet", "--ignore-unmatch", "--pathspec-from-file=-", "--pathspec-file-nul")
            await git("rm", "-r", "-f", *options, env=env, data=removed)
        written = b"".join(change.path + b"\0" for change in changes if change.source is not None)
        if written:
            await git("update-index", "--add", "--replace", "-z", "--stdin", env=env, data=written)
        return Sha(await git.line("write-tree", env=env))


def _lay_out(tree: Path, changes: Sequence[PathChange]) -> None:
    tree.mkdir()
    for change in changes:
        if change.source is None:
            continue
        goal = tree / os.fsdecode(change.path)
        goal.parent.mkdir(parents=True, exist_ok=True)
        if change.mode == LINK:
            os.symlink(os.readlink(change.source), goal)  # noqa: PTH115, PTH211 - as above
        else:
            shutil.copyfile(change.source, goal, follow_symlinks=False)
            goal.chmod(0o755 if change.mode == EXECUTABLE else 0o644)
