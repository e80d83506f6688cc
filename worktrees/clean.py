"""What a run left behind, and removing it: for `fleet clean`. Work that landed nowhere is never removed."""

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from fleet.core.ids import RunId, Sha, attempt_ref, base_ref, run_refs, tip_ref
from worktrees.commits import PATCH
from worktrees.git import Git, text
from worktrees.integrator import landed_since
from worktrees.publish import published_ref
from worktrees.slots import remove_slots, slots_dir
from worktrees.store import Store, stores_dir, try_lock
from worktrees.wipe import make_folder

DIFF_CAP = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Of one run: what there was, and what stays."""

    worktrees: tuple[Path, ...] = ()
    refs: tuple[str, ...] = ()
    """Those that nothing needs any more."""
    kept: tuple[str, ...] = ()
    """Refs of work that has not landed, or has not reached the user's repository."""
    in_use: bool = False
    """Another process works on this run; nothing was removed."""


async def clean_run(state_dir: Path, run: RunId, *, refs: bool = False, dry_run: bool = False) -> Leftovers:
    """Remove a run's worktrees and, if wanted, its refs; with `dry_run` only say what would go."""
    total = Leftovers()
    for home in _homes(state_dir, run):
        total = _sum(total, await _clean_in(Store(home), run, refs=refs, dry_run=dry_run))
    return total


async def _clean_in(store: Store, run: RunId, *, refs: bool, dry_run: bool) -> Leftovers:
    make_folder(store.home / "slots")
    with try_lock(store.home / "slots" / f"{run}.lock") as ours:
        worktrees = _worktrees(store, run)
        if not ours:
            return Leftovers(worktrees=worktrees, in_use=True)
        gone, kept = await _sorted_refs(store.git, run) if refs else ((), ())
        if not dry_run:
            await remove_slots(store, run)
            for ref in gone:
                await store.git("update-ref", "-d", ref)
        return Leftovers(worktrees=worktrees, refs=gone, kept=kept)


async def _sorted_refs(git: Git, run: RunId) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The refs of a run: those that can go, and those that hold the only copy of something."""
    listed = text(await git("for-each-ref", "--format=%(refname)", f"{run_refs(run)}/")).splitlines()
    own = {base_ref(run), tip_ref(run), published_ref(run)}
    tip, base = await git.sha(tip_ref(run)), await git.sha(base_ref(run))
    landed: set[str] = set()
    if tip is not None and base is not None:
        members = await landed_since(git, run, old=base, tip=tip)
        subtasks = tuple(attempt_ref(run, member.subtask, 0).removesuffix("0") for member in members)
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


def _worktrees(store: Store, run: RunId) -> tuple[Path, ...]:
    folder = slots_dir(store, run)
    return tuple(sorted(path for path in folder.iterdir() if path.is_dir())) if folder.is_dir() else ()


def _sum(one: Leftovers, other: Leftovers) -> Leftovers:
    return Leftovers(
        worktrees=one.worktrees + other.worktrees,
        refs=one.refs + other.refs,
        kept=one.kept + other.kept,
        in_use=one.in_use or other.in_use,
    )


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
