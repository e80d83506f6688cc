"""Packs of a few new objects, made in process: to start git costs more than all of them.

Nothing in them is a delta. Where that would make a pack large, or where there is more to send, git makes a better one.
"""

from collections.abc import Collection

from fleet.core.base.ids import Sha
from fleet.ports.worktrees import EffectError
from worktrees.git.object_format import EMPTY, GITLINK, Tree, is_folder
from worktrees.git.objects import Objects
from worktrees.git.pack_format import format_pack

MOST_COMMITS = 20  # above one that the other side has
MOST_OBJECTS = 200
MOST_BYTES = 256 * 1024  # of the objects as they are
MOST_PACKED = 12 * 1024  # of the pack: a change of three small files in a large folder has less


class _TooMuchError(Exception):
    """Git makes a better pack."""


def small_pack(objects: Objects, commit: Sha, have: Collection[Sha]) -> bytes | None:
    """What a store that has some commits lacks of another one; None where git has to make the pack. Blocks."""
    try:
        ids = _lacking(objects, commit, frozenset(have))
        if sum(objects.sizes(ids)) > MOST_BYTES:
            return None
        pack = format_pack([(each.kind, each.content) for each in objects.all(ids)], digits=len(commit))
    except (_TooMuchError, EffectError):  # whatever is wrong with the store, git says it better
        return None
    return pack if len(pack) <= MOST_PACKED else None


def _lacking(objects: Objects, commit: Sha, have: Collection[Sha]) -> list[Sha]:
    """The new objects of a commit and of those below it, down to one that the other side has."""
    lacking: dict[Sha, None] = {}
    for _ in range(MOST_COMMITS):
        if commit in have:
            return list(lacking)
        made = objects.commit(commit)
        if len(made.parents) != 1:
            break
        lacking[commit] = None
        [parent] = made.parents
        before, after = objects.tree_of(parent), made.tree
        if before != after:
            _add_tree(lacking, objects, after, objects.tree(before))
        commit = parent
    raise _TooMuchError


def _add_tree(lacking: dict[Sha, None], objects: Objects, id_: Sha, before: Tree) -> None:
    """A folder, and what in it is not as it was before."""
    lacking[id_] = None
    for name, node in objects.tree(id_).items():
        old = before.get(name)
        if node == old or node[0] == GITLINK.encode():
            continue
        if len(lacking) >= MOST_OBJECTS:
            raise _TooMuchError
        if is_folder(node):
            _add_tree(lacking, objects, node[1].hex(), objects.tree_at(old) if old is not None else EMPTY)
        elif old is None or node[1] != old[1]:
            lacking[node[1].hex()] = None
