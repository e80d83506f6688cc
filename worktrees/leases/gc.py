"""What a run left behind, and removing it: for `fleet clean`. Work that landed nowhere is never removed."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from fleet.core.ids import RunId, Sha, attempt_ref, base_ref, kept_ref, run_refs, tip_ref
from worktrees.git import Git, text
from worktrees.integrator import landed_since
from worktrees.overlays import FOLDER
from worktrees.patches import PATCH
from worktrees.publish import published_ref
from worktrees.slots import remove_slots, slots_dir
from worktrees.store import Store, stores_dir, try_lock
from worktrees.wipe import make_folder, size_of, wipe

DIFF_CAP = 2 * 1024 * 1024
IDLE_S = 3600.0  # a store that was opened so short a time ago may be about to be used
OVERLAY_KINDS = {
    "bases": "overlay grounds",
    "layers": "overlay layers",
    "leases": "overlay leases",
    "dresses": "set-ups",
}


@dataclass(frozen=True, slots=True)
class Part:
    """What of one kind takes room on disk."""

    kind: str
    number: int
    size: int
    """In bytes."""


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Of one run: what there was, and what stays."""

    parts: tuple[Part, ...] = ()
    """Worktrees and all that they stood on, by kind."""
    refs: tuple[str, ...] = ()
    """Those that nothing needs any more."""
    kept: tuple[str, ...] = ()
    """Refs of work that has not landed, or has not reached the user's repository."""
    in_use: bool = False
    """Another process works on this run; nothing was removed."""
    homes: tuple[Path, ...] = ()
    """Of the stores that hold what is kept."""


async def clean_run(state_dir: Path, run: RunId, *, refs: bool = False, dry_run: bool = False) -> Leftovers:
    """Remove a run's worktrees and, if wanted, its refs; with `dry_run` only say what would go."""
    total = Leftovers()
    for home in _homes(state_dir, run):
        total = _sum(total, await _clean_in(Store(home), run, refs=refs, dry_run=dry_run))
    return total


async def _clean_in(store: Store, run: RunId, *, refs: bool, dry_run: bool) -> Leftovers:
    make_folder(store.home / "slots")
    with try_lock(store.home / "slots" / f"{run}.lock") as ours:
        parts = await _parts(slots_dir(store, run))
        if not ours:
            return Leftovers(parts, in_use=True)
        gone, kept = await _sorted_refs(store.git, run) if refs else ((), ())
        if not dry_run:
            await remove_slots(store, run)
            for ref in gone:
                await store.git("update-ref", "-d", ref)
        return Leftovers(parts, gone, kept, homes=(store.home,) if kept else ())


async def _sorted_refs(git: Git, run: RunId) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The refs of a run: those that can go, and those that hold the only copy of something."""
    listed = text(await git("for-each-ref", "--format=%(refname)", f"{run_refs(run)}/")).splitlines()
    own = {base_ref(run), tip_ref(run), published_ref(run)}
    tip, base = await git.sha(tip_ref(run)), await git.sha(base_ref(run))
    landed: set[str] = set()
    if tip is not None and base is not None:
        members = await landed_since(git, run, old=base, tip=tip)
        named = (name(run, member.subtask, 0) for member in members for name in (attempt_ref, kept_ref))
        subtasks = tuple(ref.removesuffix("0") for ref in named)
        landed = {ref for ref in listed if ref.startswith(subtasks)}  # with the attempts that the landed one replaced
    delivered = tip is not None and tip in {await git.sha(published_ref(run)), base}
    gone = tuple(ref for ref in listed if ref in landed or (ref in own and delivered))
    if any(ref not in landed and ref not in own for ref in listed):
        gone = tuple(ref for ref in gone if ref not in own)  # what is left needs them to be understood
    return gone, tuple(ref for ref in listed if ref not in gone)


def _homes(state_dir: Path, run: RunId) -> list[Path]:
    stores = stores_dir(state_dir)
    homes = sorted(stores.iterdir()) if stores.is_dir() else []
    return [home for home in homes if (home / "slots" / f"{run}.lock").exists()]


async def _parts(folder: Path) -> tuple[Part, ...]:
    """What stands in the folder of a run's worktrees."""
    found: dict[str, tuple[int, int]] = {}
    for kind, path in _things(folder):
        number, size = found.get(kind, (0, 0))
        found[kind] = (number + 1, size + await size_of(path))
    return tuple(Part(kind, number, size) for kind, (number, size) in sorted(found.items()))


def _things(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in _in(folder):
        if path.name == FOLDER:
            for group in _in(path):
                kind = OVERLAY_KINDS.get(group.name, "overlay leftovers")
                yield from ((kind, each) for each in _in(group))
        elif path.name.isdigit():
            yield "pool worktrees", path
        else:
            yield "scratch folders", path


def _in(folder: Path) -> list[Path]:
    listed = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in listed if path.is_dir() and not path.is_symlink())


def _sum(one: Leftovers, other: Leftovers) -> Leftovers:
    parts = dict.fromkeys(part.kind for part in (*one.parts, *other.parts))
    return Leftovers(
        tuple(_joined(kind, (*one.parts, *other.parts)) for kind in parts),
        refs=one.refs + other.refs,
        kept=one.kept + other.kept,
        in_use=one.in_use or other.in_use,
        homes=one.homes + other.homes,
    )


def _joined(kind: str, parts: tuple[Part, ...]) -> Part:
    same = [part for part in parts if part.kind == kind]
    return Part(kind, sum(part.number for part in same), sum(part.size for part in same))


# ---- stores ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoreLeft:
    """A store, and whether anybody needs it."""

    home: Path
    size: int
    used_at: float
    runs: tuple[RunId, ...]
    """Whose refs it holds."""
    idle: bool
    """Whether it holds nobody's refs, and nobody has opened it lately: it can be made again at any time."""


async def stores(state_dir: Path, *, idle_s: float = IDLE_S) -> tuple[StoreLeft, ...]:
    """All stores there are."""
    return tuple([await _looked_at(home, idle_s) for home in _in(stores_dir(state_dir))])


async def _looked_at(home: Path, idle_s: float) -> StoreLeft:
    store, runs = Store(home), dict[str, None]()
    if store.git_dir.is_dir():
        listed = text(await store.git("for-each-ref", "--format=%(refname)")).splitlines()
        runs = dict.fromkeys(ref.split("/")[2] for ref in listed)
    lock = home / "lock"
    used_at = (lock if lock.exists() else home).stat().st_mtime
    busy = any(_in(home / "slots")) or time.time() - used_at < idle_s
    return StoreLeft(home, await size_of(home), used_at, tuple(runs), idle=not runs and not busy)


async def remove_store(home: Path, *, idle_s: float = IDLE_S) -> bool:
    """Remove a store that nobody needs; False where somebody does by now."""
    async with Store(home).administration():
        if not (await _looked_at(home, idle_s)).idle:
            return False
        await wipe(home / "fleet.git")
    await wipe(home)
    return True


async def stored_diff(state_dir: Path, run: RunId, base: Sha, commit: Sha) -> str | None:
    """The patch between two commits of a run, from whichever store has them; None where no store has."""
    for home in _homes(state_dir, run):
        git = Store(home).git
        if await git.sha(base) is not None and await git.sha(commit) is not None:
            return text(await git(*PATCH, base, commit, cap=DIFF_CAP))
    return None


async def stored_copy(state_dir: Path, run: RunId, commit: Sha, into: Path) -> bool:
    """Check a commit of a run out into an empty folder that no repository knows of; False where no store has it."""
    for home in _homes(state_dir, run):
        git = Store(home).git
        if await git.sha(commit) is None:
            continue
        with TemporaryDirectory(prefix="fleet-index-") as passing:
            env = {"GIT_INDEX_FILE": str(Path(passing, "index")), "GIT_WORK_TREE": str(into)}
            await git("read-tree", commit, env=env)
            await git("checkout-index", "--all", "--force", env=env)
        return True
    return False
