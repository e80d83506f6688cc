"""Finds files that Git LFS should store and a worker wrote as they are: the repository would hold their bytes.

In a worktree such files are pointers, three lines of text. A commit must hold pointers, too, and only Git LFS makes
them.
"""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from fleet.core.base.ids import Sha
from fleet.core.base.paths import folders_above
from worktrees.git.diff import Diff, DiffEntry
from worktrees.git.object_format import ATTRIBUTES, EXECUTABLE, FILE, LINK, is_folder, node_id
from worktrees.git.objects import Objects
from worktrees.git.program import fields
from worktrees.git.repository import Repository

RULE = b"filter=lfs"
POINTER = b"version https://git-lfs.github.com/spec/"
LONGEST_POINTER = 1024


async def raw_large_files(repository: Repository, base: Sha, tree: Sha, diff: Diff) -> list[str]:
    """The new or changed files that attributes give to Git LFS and that are no pointers, unless they never were."""
    asked = await repository.run(partial(_may_be_large, repository.objects, tree, diff.files))
    if not asked:
        return []
    with TemporaryDirectory(prefix="fleet-index-") as folder:
        env = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
        await repository.git("read-tree", tree, env=env)
        names = "".join(f"{entry.path}\0" for entry in asked).encode("utf-8", "surrogateescape")
        answers = fields(await repository.git("check-attr", "--cached", "-z", "--stdin", "filter", env=env, data=names))
    large = {path for path, _, value in zip(*[iter(answers)] * 3, strict=True) if value == "lfs"}
    return await repository.run(partial(_raw, repository.objects, base, [e for e in asked if e.path in large]))


def _may_be_large(objects: Objects, tree: Sha, files: Sequence[DiffEntry]) -> list[DiffEntry]:
    """The files below a `.gitattributes` that names the filter, without asking git."""
    has_rule: dict[str, bool] = {}

    def rules(folder: str) -> bool:
        if folder not in has_rule:
            content = _content(objects, tree, f"{folder}{ATTRIBUTES}")
            has_rule[folder] = content is not None and RULE in content
        return has_rule[folder]

    def is_below(path: str) -> bool:
        return rules("") or any(rules(f"{folder}/") for folder in folders_above(path))

    return [entry for entry in files if entry.mode != LINK and is_below(entry.path)]


def _raw(objects: Objects, base: Sha, files: Sequence[DiffEntry]) -> list[str]:
    raw = []
    for entry in files:
        before = _content(objects, objects.tree_of(base), entry.path)
        was_raw = before is not None and not _is_pointer(before)
        if not was_raw and not _is_pointer(objects.blob(entry.id)):
            raw.append(entry.path)
    return raw


def _content(objects: Objects, tree: Sha, path: str) -> bytes | None:
    """A file of a tree; None where there is none."""
    *folders, name = os.fsencode(path).split(b"/")
    entries = objects.tree(tree)
    for folder in folders:
        node = entries.get(folder)
        if not is_folder(node):
            return None
        entries = objects.tree_at(node)
    node = entries.get(name)
    if node is None or node[0].decode() not in {FILE, EXECUTABLE}:
        return None
    return objects.blob(node_id(node))


def _is_pointer(content: bytes) -> bool:
    return content.startswith(POINTER) and len(content) <= LONGEST_POINTER
