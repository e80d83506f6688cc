"""Packs between stores: the objects that another store needs for a commit, and objects from a trusted store."""

import os
import re
import time
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from os import SEEK_END
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from anyio import open_file, sleep, to_thread

from fleet.core.base.ids import Sha
from fleet.errors import FleetError
from fleet.ports.worktrees import EffectError
from fleet.runs.crash_points import reached
from worktrees.base.process import Launch, effect_error, run
from worktrees.git.object_format import EMPTY, GITLINK, Tree, format_pack, is_folder, node_id
from worktrees.git.objects import Objects
from worktrees.git.program import CAP, GRACE_S, TIMEOUT_S, Git, GitError, ask_git, command, environment, text
from worktrees.store.store import Store, make_ours, new_prefix, try_lock, unusable

CACHE = "refs/fleet/cache"
NAMED = 64  # commits that a cache reports: the newest are the nearest to the next request
LOOSE_BYTES = 256 * 1024  # smaller packs become single objects, as in git fetch
PART = 1024 * 1024


async def thin_pack(store: Store, commit: Sha, have: Sequence[Sha]) -> bytes:
    """Pack the objects of a commit that a store with some commits lacks. Raises `EffectError`."""
    repository = store.repository
    if (small := await repository.run(partial(small_pack, repository.objects, commit, have))) is not None:
        return small
    wanted = "".join((f"{commit}\n", *(f"^{each}\n" for each in have)))
    answer = await store.git.ask("pack-objects", "--quiet", "--revs", "--thin", "--stdout", data=wanted.encode())
    if answer.exit_code != 0 or answer.cut:
        why = f"it has more than {CAP} bytes" if answer.cut else text(answer.stderr)
        raise effect_error(f"can't pack the objects of {commit[:12]}", why)
    return answer.stdout


async def pack_parts(store: Store, commit: Sha, have: Sequence[Sha]) -> AsyncIterator[bytes]:
    """The same in parts. The full history of a repository goes through a file, and never through memory."""
    if have:
        pack = await thin_pack(store, commit, have)
        for at in range(0, len(pack), PART):
            yield pack[at : at + PART]
        return
    async with _folder(store.home) as folder:
        name = text(await store.git("pack-objects", "--quiet", "--revs", str(folder / "seed"), data=commit.encode()))
        async with await open_file(folder / f"seed-{name.strip()}.pack", "rb") as file:
            while part := await file.read(PART):
                yield part


async def take_pack(store: Store, commit: Sha, pack: IO[bytes]) -> None:
    """Import a pack file from the manager, and keep its commit. Raises `EffectError`.

    Git reads the file, so the full history of a repository never goes through memory.
    """
    size = pack.seek(0, SEEK_END)
    pack.seek(0)
    program = ("unpack-objects", "-q") if size < LOOSE_BYTES else ("index-pack", "--stdin", "--fix-thin")
    answer = await ask_git(*program, env=store.git.place, source=pack.fileno())
    if answer.exit_code != 0:
        raise GitError(program, answer)
    if await store.git.sha(commit) is None:
        raise effect_error(f"the pack does not contain {commit[:12]}")
    await store.repository.refs.pin(f"{CACHE}/{commit}", commit)


async def cached_commits(store: Store) -> tuple[Sha, ...]:
    """Return the newest commits that this store received."""
    listed = text(
        await store.git(
            "for-each-ref", "--sort=-creatordate", f"--count={NAMED}", "--format=%(objectname)", f"{CACHE}/"
        )
    )
    return tuple(map(Sha, listed.split()))


async def cached_count(store: Store) -> int:
    """Return how many commits this store received."""
    return text(await store.git("for-each-ref", "--format=%(objectname)", f"{CACHE}/")).count("\n")


@asynccontextmanager
async def _folder(home: Path) -> AsyncIterator[Path]:
    folder = await to_thread.run_sync(lambda: TemporaryDirectory(prefix=new_prefix("pack-"), dir=home))
    try:
        yield Path(folder.name)
    finally:
        await to_thread.run_sync(folder.cleanup)


# ---- small pack ------------------------------------------------------------------------------------------------------
# Packs of a few new objects, made in process: starting git costs more than all of them.
#
# They do not contain deltas. If that would make a pack large, or if there are more objects to send, git makes a better
# one.


MOST_COMMITS = 20  # above a commit that the other side has
MOST_OBJECTS = 200
MOST_BYTES = 256 * 1024  # total size of the objects
MOST_PACKED = 12 * 1024  # size of the pack: a change of three small files in a large folder has less


class _TooMuchError(Exception):
    """Git makes a better pack."""


def small_pack(objects: Objects, commit: Sha, have: Collection[Sha]) -> bytes | None:
    """Pack the objects of another commit that a store lacks, or return None if git should make the pack. Blocks."""
    try:
        ids = _lacking(objects, commit, frozenset(have))
        if sum(objects.sizes(ids)) > MOST_BYTES:
            return None
        pack = format_pack([(each.kind, each.content) for each in objects.all(ids)], digits=len(commit))
    except (_TooMuchError, EffectError):  # git reports any problem of the store better
        return None
    return pack if len(pack) <= MOST_PACKED else None


def _lacking(objects: Objects, commit: Sha, have: Collection[Sha]) -> list[Sha]:
    """Return the new objects of a commit and its ancestors, down to a commit that the other side has."""
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
    """Add a folder and its changed entries."""
    lacking[id_] = None
    for name, node in objects.tree(id_).items():
        old = before.get(name)
        if node == old or node[0] == GITLINK.encode():
            continue
        if len(lacking) >= MOST_OBJECTS:
            raise _TooMuchError
        if is_folder(node):
            _add_tree(lacking, objects, node_id(node), objects.tree_at(old) if old is not None else EMPTY)
        elif old is None or node[1] != old[1]:
            lacking[node_id(node)] = None


# ---- loose objects ---------------------------------------------------------------------------------------------------
# Packs the loose objects of a store during a run: each is a file, and a run adds more than ten per subtask.
#
# The objects are not traversed or filtered: every object stored as a file goes into a pack, whether something refers to
# it or not. A file is removed once its object is in a pack that is on the disk. Readers with an open repository look
# again if an object has moved, as they do during `git gc`. A kill can leave objects that exist twice, or an unfinished
# pack, but never loses an object.


LIMIT = 5_000  # objects: a pack for every 400 subtasks or so, and 20 MB of files between two packs
LOOK_S = 20.0
FOLDERS = tuple(f"{number:02x}" for number in range(256))
LOOKED_AT = "17"  # a sample for all folders: names are evenly distributed
FORGOTTEN_S = 3_600.0  # age in seconds of a pack that no running git can still be writing
QUIETLY = ("nice", "-n", "19")
PACK = ("pack-objects", "--quiet", "--threads=1", "--window-memory=64m", "--delta-base-offset")
OUTPUT = 64 * 1024
_NAME = re.compile(r"[0-9a-f]{38}|[0-9a-f]{62}")


async def keep_packed(store: Store, *, limit: int = LIMIT, look_s: float = LOOK_S) -> None:
    """Pack the loose objects of a store whenever there are more than `limit`. Runs until it is cancelled."""
    allowed = limit
    while True:
        await sleep(look_s)
        if await to_thread.run_sync(_estimate, store.git_dir / "objects") > allowed:
            allowed *= 2  # if it fails, one of them may be damaged, or the disk is full
            with suppress(OSError):
                if await pack_loose_objects(store):
                    allowed = limit


async def pack_loose_objects(store: Store) -> int:
    """Return how many objects were packed: none if another process packs them, or if git can't."""
    folder = store.git_dir / "objects"
    with try_lock(store.home / "packing.lock") as is_ours:
        if not is_ours:
            return 0
        await to_thread.run_sync(_remove_forgotten, folder / "pack")
        ids = await to_thread.run_sync(lambda: list(_loose(folder)))
        reached("objects are about to be packed")
        if not ids or not await _pack(store, folder / "pack", ids):
            return 0
        reached("objects are in a pack, and loose as well")
        await to_thread.run_sync(_remove, folder, ids)
        reached("objects are in a pack only")
        return len(ids)


async def _pack(store: Store, folder: Path, ids: Sequence[str]) -> bool:
    """Whether these objects are in a pack that is synced to the disk."""
    asked = "".join(f"{id_}\n" for id_ in ids).encode()
    env = {**environment(), **store.git.place}
    launch = Launch(command(*PACK, str(folder / "pack")), env, before=QUIETLY, cwd=Path("/"), input=asked)
    with suppress(EffectError):
        answer = await run(launch, timeout_s=TIMEOUT_S, cap=OUTPUT, grace_s=GRACE_S)
        if answer.exit_code == 0 and not answer.timed_out:
            name = text(answer.stdout).strip()
            await to_thread.run_sync(_sync, folder)
            return (folder / f"pack-{name}.idx").is_file() and (folder / f"pack-{name}.pack").is_file()
    return False


def _loose(objects: Path, folders: Sequence[str] = FOLDERS) -> Iterator[str]:
    """Return the objects that are files only in this store. Files shared with the user's repository take no space."""
    for folder in folders:
        with suppress(OSError), os.scandir(objects / folder) as entries:
            for entry in entries:
                if _NAME.fullmatch(entry.name) and entry.stat(follow_symlinks=False).st_nlink == 1:
                    yield folder + entry.name


def _estimate(objects: Path) -> int:
    return len(FOLDERS) * sum(1 for _ in _loose(objects, [LOOKED_AT]))


def _remove(objects: Path, ids: Sequence[str]) -> None:
    for id_ in ids:
        with suppress(FileNotFoundError):
            os.unlink(f"{objects}/{id_[:2]}/{id_[2:]}")  # noqa: PTH108 - thousands at once


def _remove_forgotten(folder: Path) -> None:
    """Remove partial packs of a git process that was killed."""
    for path in (*folder.glob("tmp_pack_*"), *folder.glob("tmp_idx_*"), *folder.glob("tmp_rev_*")):
        with suppress(FileNotFoundError):
            if time.time() - path.stat(follow_symlinks=False).st_mtime > FORGOTTEN_S:
                path.unlink()


def _sync(folder: Path) -> None:
    """Sync the names of new packs to the disk before files are removed. Git has synced their content."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# ---- node store ------------------------------------------------------------------------------------------------------
# The store of a node: a cache of one repository's objects, filled only by packs from its manager.


CACHES = "node/stores"
_NODE_STORE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}")


def caches_dir(state_dir: Path) -> Path:
    return state_dir / CACHES


async def open_node_store(state_dir: Path, name: str, object_format: str) -> Store:
    """Open the cache with this name, and create it if necessary. Raises `FleetError`."""
    if _NODE_STORE_NAME.fullmatch(name) is None or ".." in name:
        raise FleetError(f"{name!r} is not a valid name for a repository cache")
    store = Store(caches_dir(state_dir) / name)
    try:
        await to_thread.run_sync(lambda: store.home.mkdir(parents=True, exist_ok=True, mode=0o700))
        async with store.administration():
            if not await to_thread.run_sync(_is_made, store):
                await Git(store.git_dir)("init", "--quiet", "--bare", "--template=", f"--object-format={object_format}")
                await make_ours(store.git)
    except OSError as error:
        raise unusable(store.home, error) from error
    except GitError as error:
        raise FleetError(f"can't create {store.home}: {error}") from error
    return store


async def drop_pins(store: Store) -> None:
    """Delete the refs of work: it is sent as packs, so they are useless afterwards."""
    listed = text(await store.git("for-each-ref", "--format=%(refname)", "refs/fleet/"))
    pins = [ref for ref in listed.split() if not ref.startswith(f"{CACHE}/")]
    if pins:
        await store.git.ask("update-ref", "--stdin", data="".join(f"delete {ref}\n" for ref in pins).encode())


def _is_made(store: Store) -> bool:
    """Whether the store is complete: this folder is created last, after git's folder was removed."""
    head = store.git_dir / "HEAD"
    return (store.git_dir / "refs/heads").is_dir() and head.is_file() and "unused" in head.read_text(encoding="utf-8")
