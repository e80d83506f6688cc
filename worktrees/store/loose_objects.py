"""Packs the loose objects of a store while a run works: each is a file, and a run adds more than ten with each subtask.

Nothing is walked and nothing is left out: what goes into a pack is every object that lies there as a file, whether
something refers to it or not. A file is removed once its object is in a pack that is on the disk. Readers that have the
repository open look again when an object is not where it was, as they do beside `git gc`. A kill leaves objects that
exist twice, or an unfinished pack, and no object less.
"""

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from anyio import sleep, to_thread

from fleet.ports.worktrees import EffectError
from fleet.runs.crash_points import reached
from worktrees.base.process import Launch, run
from worktrees.git.program import GRACE_S, TIMEOUT_S, command, environment, text
from worktrees.store.store import Store, try_lock

LIMIT = 5_000  # objects: a pack for every 400 subtasks or so, and 20 MB of files between two packs
LOOK_S = 20.0
FOLDERS = tuple(f"{number:02x}" for number in range(256))
LOOKED_AT = "17"  # stands for all folders: names are evenly spread
FORGOTTEN_S = 3_600.0  # the age of a pack that no git can still be writing
QUIETLY = ("nice", "-n", "19")
PACK = ("pack-objects", "--quiet", "--threads=1", "--window-memory=64m", "--delta-base-offset")
OUTPUT = 64 * 1024
_NAME = re.compile(r"[0-9a-f]{38}|[0-9a-f]{62}")


async def keep_packed(store: Store, *, limit: int = LIMIT, look_s: float = LOOK_S) -> None:
    """Pack the loose objects of a store whenever there are more than `limit`. Never ends."""
    allowed = limit
    while True:
        await sleep(look_s)
        if await to_thread.run_sync(_estimate, store.git_dir / "objects") > allowed:
            allowed *= 2  # if it fails: one of them may be damaged, or the disk is full
            with suppress(OSError):
                if await pack_loose_objects(store):
                    allowed = limit


async def pack_loose_objects(store: Store) -> int:
    """How many objects were packed. None are where another process packs them, or where git can't."""
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
    """Whether these objects are in a pack that lies safely on the disk."""
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
    """The objects that are files of the store's own. What it has in common with the user's repository takes no room."""
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
    """Remove what a git that was killed left of a pack."""
    for path in (*folder.glob("tmp_pack_*"), *folder.glob("tmp_idx_*"), *folder.glob("tmp_rev_*")):
        with suppress(FileNotFoundError):
            if time.time() - path.stat(follow_symlinks=False).st_mtime > FORGOTTEN_S:
                path.unlink()


def _sync(folder: Path) -> None:
    """Bring the names of new packs to the disk before anything is removed; their content was synced by git."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
