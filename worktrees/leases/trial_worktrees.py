"""Worktrees without a run: to try set-up and checks on a commit. They leave no ref, no lock and no folder behind."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from secrets import token_hex

from anyio import CancelScope, to_thread

from worktrees.base.settings import WorktreeSettings
from worktrees.leases.run_worktrees import RunWorktrees, open_worktrees
from worktrees.pool.leases import remove_slots
from worktrees.store.locks import remove_stale_locks
from worktrees.store.store import Store, home_of, try_lock
from worktrees.target.target import Target

PREFIX = "try-"  # of the names that their folders have


@asynccontextmanager
async def open_trial_worktrees(
    target: Target, settings: WorktreeSettings, *, only_past: bool = False
) -> AsyncIterator[RunWorktrees]:
    """Worktrees of the target's base commit, or of others whose objects the store has. Raises `FleetError`."""
    store = Store(home_of(settings.state_dir, target))
    name = f"{PREFIX}{token_hex(4)}"
    await _remove_leftovers(store)
    try:
        async with open_worktrees(target, settings, name, target.base, refs=False, only_past=only_past) as worktrees:
            yield worktrees
    finally:
        with CancelScope(shield=True):
            await to_thread.run_sync(_remove_lock, _lock_of(store, name))


async def _remove_leftovers(store: Store) -> None:
    """Remove what trials left whose process was killed."""
    folder = store.home / "slots"
    names = [path.name.removesuffix(".lock") for path in folder.glob(f"{PREFIX}*.lock")] if folder.is_dir() else []
    for name in names:
        with try_lock(_lock_of(store, name)) as is_left:
            if is_left:
                await remove_stale_locks(store, name)
                await remove_slots(store, name)
                _remove_lock(_lock_of(store, name))


def _lock_of(store: Store, name: str) -> Path:
    return store.home / "slots" / f"{name}.lock"


def _remove_lock(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
