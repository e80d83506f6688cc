"""Three-way merges of trees: in process if the changes do not overlap, else by `git merge-tree`.

The merge in process takes the paths that each side changed and writes only the trees above them. Its cost depends on
the changes, not on the size of the repository. It refuses every case that needs git's merge logic: a path that both
sides changed (also in the same way), a file where the other side has a folder, and a change in a folder that the other
side removed. Every rename that could matter appears as one of these: a file renamed on one side and edited on the other
is a path that both changed, and a folder that git would detect as renamed is removed on that side, so a file that the
other side added to it is refused. A property test checks that both ways make the same trees.
"""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass

from fleet.core.base.ids import Sha
from fleet.core.facts.facts import Failure
from worktrees.base.fs import printable
from worktrees.base.process import effect_error
from worktrees.git.diff import differing_names
from worktrees.git.object_format import DEEPEST, Node, Tree, folder_node, is_folder, one_line
from worktrees.git.objects import Objects
from worktrees.git.program import Git, text

LONGEST_LINE = 20_000  # commits between a candidate's base and the tip
CONFLICT = 1  # merge-tree's exit code for a conflict
ABORTED = -signal.SIGABRT  # git 2.39 fails an assertion on some renames into folders that became files


class _BothChanged(Exception):  # noqa: N818 - it is an answer
    """Both sides changed this path."""


def merge_in_process(objects: Objects, base: Sha, ours: Sha, theirs: Sha) -> Sha | None:
    """Return the merged tree of two trees, or None if git has to decide."""
    if base == theirs:
        return ours
    if base == ours:
        return theirs
    try:
        return objects.put_tree(_merge(objects, objects.tree(base), objects.tree(ours), objects.tree(theirs), 0))
    except _BothChanged:
        return None


def _merge(objects: Objects, base: Tree, ours: Tree, theirs: Tree, depth: int) -> Tree:
    """Return our tree with their changes. Raises `_BothChanged`."""
    if depth > DEEPEST:
        raise _BothChanged
    merged = dict(ours)
    for name in differing_names(base, theirs):
        nodes = base.get(name), ours.get(name), theirs.get(name)
        before, our_node, their_node = nodes
        merged.pop(name, None)
        node: Node | None = their_node
        if before != our_node:
            both_folders = is_folder(our_node) and is_folder(their_node) and (before is None or is_folder(before))
            if our_node == their_node or not both_folders:
                raise _BothChanged
            below = [objects.tree_at(each) for each in nodes]
            entries = _merge(objects, below[0], below[1], below[2], depth + 1)
            node = folder_node(objects.put_tree(entries)) if entries else None
        if node is not None:
            merged[name] = node
    return merged


def is_on_line(objects: Objects, tip: Sha, *, base: Sha, unless: Sha) -> bool:
    """Whether single parents lead from the tip to `base` without passing `unless`.

    Then `base` is the only merge base of the tip and of `unless`, if `base` is the only parent of `unless`.
    """
    commit = tip
    for _ in range(LONGEST_LINE):
        if commit == base:
            return True
        parents = objects.commit(commit).parents
        if commit == unless or len(parents) != 1:
            return False
        commit = parents[0]
    return False


# ---- by git ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MergeConflict:
    """The reason why two commits do not merge."""

    paths: tuple[str, ...]
    messages: str
    tree: Sha
    """The merge as far as possible, with conflict markers. Empty if git failed."""


async def merge_trees(git: Git, ours: Sha, theirs: Sha) -> Sha | MergeConflict:
    """Return the tree of a three-way merge of two commits, or the conflict."""
    answer = await git.ask("merge-tree", "--write-tree", "-z", "--name-only", "--messages", ours, theirs)
    if answer.exit_code == ABORTED:  # the candidate is the cause, not the machine: others can land
        return MergeConflict((), f"git failed to merge this change: {text(answer.stderr).strip()}", Sha(""))
    if answer.exit_code not in {0, CONFLICT}:
        raise effect_error("git merge-tree failed", text(answer.stderr))
    written, _, rest = answer.stdout.partition(b"\0")
    tree = Sha(text(written).strip())
    if answer.exit_code == 0:
        return tree
    names, _, messages = rest.partition(b"\0\0")
    paths = tuple(dict.fromkeys(os.fsdecode(name) for name in names.split(b"\0") if name))
    return MergeConflict(paths, _parse_messages(messages), tree)


def _parse_messages(raw: bytes) -> str:
    """Parse git's messages: count, paths, kind, message. Only the last is meant for people."""
    parts, lines, at = raw.split(b"\0"), list[str](), 0
    while at < len(parts) and parts[at].isdigit():
        at += int(parts[at]) + 2
        if at < len(parts):
            lines.append(text(parts[at]).strip())
        at += 1
    return "\n".join(line for line in lines if line.startswith("CONFLICT")) or "\n".join(lines)


# ---- conflict --------------------------------------------------------------------------------------------------------
# The failure of a candidate that does not merge, with enough evidence for a worker to do the work again.
#
# The evidence shows the intent of both sides: the paths, the conflicting hunks, and the commits that changed these
# paths in the meantime. Names and texts come from workers, so names are made safe to print, and every part has a limit.


EVIDENCE = 8_000  # characters in all
MOST_PATHS = 20
MOST_FILES = 5  # paths with hunks in the evidence
MOST_LANDED = 10
MESSAGES = 1_500  # characters of git's own messages
HUNK_LINES = 40
FILE_CAP = 256 * 1024
OURS, BETWEEN, THEIRS = "<<<<<<< ", "=======", ">>>>>>> "


async def conflict_failure(git: Git, conflict: MergeConflict, *, base: Sha, tip: Sha) -> Failure:
    """Return the failure of a candidate based on `base` that does not merge with `tip`."""
    listed = "\n".join(map(printable, conflict.paths[:MOST_PATHS]))
    more = f"\n... and {len(conflict.paths) - MOST_PATHS} more" if len(conflict.paths) > MOST_PATHS else ""
    parts = [f"{listed}{more}", conflict.messages[:MESSAGES], await _landed_commits(git, conflict, base, tip)]
    parts += [await _hunks(git, conflict.tree, path) for path in conflict.paths[:MOST_FILES]]
    named = ", ".join(map(printable, conflict.paths[:5])) or "git failed to merge it"
    return Failure(
        kind="conflict",
        summary=f"conflicts with landed work: {named}",
        evidence="\n\n".join(part for part in parts if part)[:EVIDENCE],
    )


async def _landed_commits(git: Git, conflict: MergeConflict, base: Sha, tip: Sha) -> str:
    """Subjects and trailers of the commits that changed these paths since the candidate's base, newest first."""
    if not conflict.paths:
        return ""
    form = "--format=%s%n%(trailers:only,unfold)"
    query = ("log", "-z", f"--max-count={MOST_LANDED}", "--no-show-signature", form, f"{base}..{tip}", "--")
    answer = await git.ask(*query, *conflict.paths[:MOST_PATHS])
    lines: list[str] = []
    for entry in text(answer.stdout).split("\0"):
        subject, *rest = entry.strip().splitlines() or [""]
        lines += [f"- {one_line(subject)}"] if subject else []
        lines += [f"  {one_line(line)}" for line in rest if line.startswith("Fleet-")]
    return "\n".join(("commits landed since this attempt's base, on these paths:", *lines)) if lines else ""


async def _hunks(git: Git, tree: Sha, path: str) -> str:
    """The conflicting hunks of a file. Empty for a binary file."""
    answer = await git.ask("cat-file", "blob", f"{tree}:{path}", cap=FILE_CAP)
    if answer.exit_code != 0 or b"\0" in answer.stdout:
        return ""
    hunks = ["\n".join(hunk) for hunk in _marked_hunks(text(answer.stdout).splitlines())]
    return "\n".join((f"{printable(path)}:", *hunks)) if hunks else ""


def _marked_hunks(lines: list[str]) -> Iterator[list[str]]:
    """Return the parts of a file between conflict markers, each cut to a readable length."""
    hunk: list[str] | None = None
    for line in lines:
        if line.startswith(OURS):
            hunk = [f"{OURS}landed"]
        elif hunk is not None and line.startswith(THEIRS):
            yield [*_shorten(hunk), f"{THEIRS}this attempt"]
            hunk = None
        elif hunk is not None:
            hunk.append(line)


def _shorten(hunk: list[str]) -> list[str]:
    """Return both sides, each without its tail if it is long."""
    middle = hunk.index(BETWEEN) if BETWEEN in hunk else len(hunk)
    lines: list[str] = []
    for side in (hunk[:middle], hunk[middle:]):
        lines += side[:HUNK_LINES]
        if len(side) > HUNK_LINES:
            lines.append(f"... {len(side) - HUNK_LINES} more lines")
    return lines
