"""Leftovers of runs and stores for `fleet clean`, and the commits of a run without an engine.

Work that has not landed, or has not reached the user's repository, is never removed while that repository exists.
"""

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from fleet.core.base.ids import RunId, Sha, attempt_ref, base_ref, kept_ref, run_refs, taken_refs, tip_ref
from worktrees.base.fs import make_folder, size_of, wipe
from worktrees.git.diff import PATCH
from worktrees.git.program import Git, text
from worktrees.leases.overlay import OVERLAYS
from worktrees.leases.pool import remove_slots
from worktrees.store.integrator import landed_since
from worktrees.store.store import Store, lost_repository, slots_dir, stores_dir, try_lock
from worktrees.target.publish import published_ref

DIFF_CAP = 2 * 1024 * 1024
IDLE_S = 3600.0  # a recently opened store may be about to be used
OVERLAY_KINDS = {
    "bases": "base layers",
    "layers": "diff layers",
    "leases": "overlay leases",
    "setups": "set-up layers",
}


@dataclass(frozen=True, slots=True)
class StorePart:
    """All leftovers of one kind."""

    kind: str
    number: int
    size: int
    """In bytes."""


@dataclass(frozen=True, slots=True)
class Leftovers:
    """The leftovers of one run: removable and kept."""

    parts: tuple[StorePart, ...] = ()
    """Worktrees and their layers, by kind."""
    refs: tuple[str, ...] = ()
    """The refs that are no longer needed."""
    kept: tuple[str, ...] = ()
    """The refs of work that has not landed, or has not reached the user's repository."""
    in_use: bool = False
    """Whether another process uses this run. Then everything is kept."""
    homes: tuple[Path, ...] = ()
    """The stores with the kept refs."""


async def clean_run(state_dir: Path, run: RunId, *, refs: bool = False, dry_run: bool = False) -> Leftovers:
    """Remove a run's worktrees and, with `refs`, its refs. With `dry_run`, only list them."""
    leftovers = [await _clean_in(Store(home), run, refs=refs, dry_run=dry_run) for home in _homes(state_dir, run)]
    return Leftovers(
        tuple(part for each in leftovers for part in each.parts),
        tuple(ref for each in leftovers for ref in each.refs),
        tuple(ref for each in leftovers for ref in each.kept),
        in_use=any(each.in_use for each in leftovers),
        homes=tuple(home for each in leftovers for home in each.homes),
    )


async def _clean_in(store: Store, run: RunId, *, refs: bool, dry_run: bool) -> Leftovers:
    make_folder(store.home / "slots")
    with try_lock(store.home / "slots" / f"{run}.lock") as ours:
        parts = await _parts(slots_dir(store, run))
        if not ours:
            return Leftovers(parts, in_use=True)
        removable, kept = await _sorted_refs(store.git, run) if refs else ((), ())
        if not dry_run:
            await remove_slots(store, run)
            for ref in removable:
                await store.git("update-ref", "-d", ref)
        return Leftovers(parts, removable, kept, homes=(store.home,) if kept else ())


async def _sorted_refs(git: Git, run: RunId) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Sort the refs of a run into removable ones, and those with the only copy of some work."""
    listed = tuple(await git.refs(f"{run_refs(run)}/"))
    run_level = {base_ref(run), tip_ref(run), published_ref(run)}
    run_level |= {ref for ref in listed if ref.startswith(taken_refs(run))}
    tip, base = await git.sha(tip_ref(run)), await git.sha(base_ref(run))
    landed: set[str] = set()
    if tip is not None and base is not None:
        members = await landed_since(git, run, old=base, tip=tip)
        named = (name(run, member.subtask, 0) for member in members for name in (attempt_ref, kept_ref))
        subtasks = tuple(ref.removesuffix("0") for ref in named)
        landed = {ref for ref in listed if ref.startswith(subtasks)}  # with the attempts that the landed one replaced
    delivered = tip is not None and tip in {await git.sha(published_ref(run)), base}
    removable = tuple(ref for ref in listed if ref in landed or (ref in run_level and delivered))
    if any(ref not in landed and ref not in run_level for ref in listed):
        removable = tuple(ref for ref in removable if ref not in run_level)  # the others are useless without them
    return removable, tuple(ref for ref in listed if ref not in removable)


def _homes(state_dir: Path, run: RunId) -> list[Path]:
    return [home for home in _subfolders(stores_dir(state_dir)) if (home / "slots" / f"{run}.lock").exists()]


async def _parts(folder: Path) -> tuple[StorePart, ...]:
    """List the contents of a run's worktree folder."""
    sizes: dict[str, list[int]] = {}
    for kind, path in _leftovers(folder):
        sizes.setdefault(kind, []).append(await size_of(path))
    return tuple(StorePart(kind, len(each), sum(each)) for kind, each in sorted(sizes.items()))


def _leftovers(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in _subfolders(folder):
        if path.name == OVERLAYS:
            for group in _subfolders(path):
                kind = OVERLAY_KINDS.get(group.name, "overlay leftovers")
                yield from ((kind, each) for each in _subfolders(group))
        else:
            yield "pool worktrees" if path.name.isdigit() else "scratch folders", path


def _subfolders(folder: Path) -> list[Path]:
    listed = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in listed if path.is_dir() and not path.is_symlink())


# ---- stores ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoreUse:
    """A store and its users."""

    home: Path
    size: int
    used_at: float
    runs: tuple[RunId, ...]
    """The runs with refs in it that have a folder, or unlanded work."""
    idle: bool
    """Whether it can be removed: no run needs it and it was not opened recently. fleet can always create it again."""
    lost: Path | None = None
    """The repository, if that no longer exists."""


async def stores(state_dir: Path, known: Collection[RunId], *, idle_s: float = IDLE_S) -> tuple[StoreUse, ...]:
    """Return all stores. `known` are the runs that have a folder."""
    return tuple([await _store_use(home, known, idle_s) for home in _subfolders(stores_dir(state_dir))])


async def _store_use(home: Path, known: Collection[RunId], idle_s: float) -> StoreUse:
    store, runs = Store(home), list[RunId]()
    if store.git_dir.is_dir():
        named = dict.fromkeys(RunId(ref.split("/")[2]) for ref in await store.git.refs("refs/"))
        runs = [run for run in named if run in known or (await _sorted_refs(store.git, run))[1]]
    lock = home / "lock"
    used_at = (lock if lock.exists() else home).stat().st_mtime
    busy = any(_subfolders(home / "slots")) or time.time() - used_at < idle_s
    idle, lost = not runs and not busy, lost_repository(home)
    return StoreUse(home, await size_of(home), used_at, tuple(runs), idle=idle, lost=lost)


async def remove_store(home: Path, known: Callable[[], Collection[RunId]], *, idle_s: float = IDLE_S) -> bool:
    """Remove a store unless it is needed. Return False if it is needed by now."""
    async with Store(home).administration():
        if not (await _store_use(home, known(), idle_s)).idle:
            return False
        await wipe(home / "fleet.git")
    await wipe(home)
    return True


async def remove_lost_store(home: Path) -> bool:
    """Remove a store with all its work. Return False if its repository exists again, or a run is active in it."""
    async with Store(home).administration():
        with ExitStack() as locks:
            held = [locks.enter_context(try_lock(lock)) for lock in sorted((home / "slots").glob("*.lock"))]
            if lost_repository(home) is None or not all(held):
                return False
            await wipe(home / "fleet.git")
    await wipe(home)
    return True


# ---- commits ---------------------------------------------------------------------------------------------------------


async def stored_diff(state_dir: Path, run: RunId, base: Sha, commit: Sha) -> str | None:
    """Return the patch between two commits of a run, from any store that has them, or None."""
    git = await _git_with(state_dir, run, base, commit)
    return None if git is None else text(await git(*PATCH, base, commit, cap=DIFF_CAP))


async def stored_copy(state_dir: Path, run: RunId, commit: Sha, into: Path) -> bool:
    """Check out a commit of a run into an empty folder outside all repositories. Return False if no store has it."""
    git = await _git_with(state_dir, run, commit)
    if git is None:
        return False
    with TemporaryDirectory(prefix="fleet-index-") as temporary:
        env = {"GIT_INDEX_FILE": str(Path(temporary, "index")), "GIT_WORK_TREE": str(into)}
        await git("read-tree", commit, env=env)
        await git("checkout-index", "--all", "--force", env=env)
    return True


async def _git_with(state_dir: Path, run: RunId, *commits: Sha) -> Git | None:
    """Return the first of a run's stores that has all these commits."""
    for home in _homes(state_dir, run):
        git = Store(home).git
        if all([await git.sha(commit) is not None for commit in commits]):
            return git
    return None
