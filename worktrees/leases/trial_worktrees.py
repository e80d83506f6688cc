"""Worktrees without a run: to try set-up and checks on a commit. They leave no ref, no lock and no folder behind."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from anyio import CancelScope, to_thread

from fleet.core.base.ids import Sha
from fleet.ports.worktrees import EffectError
from worktrees.base.fs import make_folder
from worktrees.base.settings import WorktreeSettings
from worktrees.leases.leases import Leases, open_leases
from worktrees.leases.pool import remove_slots
from worktrees.leases.run_worktrees import RunWorktrees, open_worktrees
from worktrees.leases.setup import Included
from worktrees.sandbox.overlay_mount import end_orphans
from worktrees.store.locks import remove_stale_locks
from worktrees.store.store import Store, home_of, slots_dir, try_lock, unusable
from worktrees.target.target import Target

PREFIX = "try-"  # of the names that their folders have


@asynccontextmanager
async def open_trial_worktrees(
    target: Target, settings: WorktreeSettings, *, only_past: bool = False
) -> AsyncIterator[RunWorktrees]:
    """Worktrees of the target's base commit, or of others whose objects the store has. Raises `FleetError`."""
    store = Store(home_of(settings.state_dir, target))
    name = f"{PREFIX}{token_hex(4)}"
    await remove_unused(store, PREFIX)
    try:
        async with open_worktrees(target, settings, name, target.base, refs=False, only_past=only_past) as worktrees:
            yield worktrees
    finally:
        with CancelScope(shield=True):
            await to_thread.run_sync(remove_lock, store, name)


async def remove_unused(store: Store, prefix: str) -> None:
    """Remove the worktrees under names of this kind whose process is gone.

    A folder without a lock is left over, too: what a killed process had started may write a moment longer than it did.
    """
    folder = store.home / "slots"
    for name in {path.name.removesuffix(".lock") for path in folder.glob(f"{prefix}*")}:
        with try_lock(_lock_of(store, name)) as is_left:
            if is_left:
                await remove_stale_locks(store, name)
                await remove_slots(store, name)
                remove_lock(store, name)


def is_taken(store: Store, prefix: str) -> bool:
    """Whether a process holds worktrees under a name of this kind."""
    for path in (store.home / "slots").glob(f"{prefix}*.lock"):
        with try_lock(path) as is_left:
            if not is_left:
                return True
    return False


@contextmanager
def taken_name(store: Store, name: str) -> Iterator[None]:
    """Hold a new name of worktrees, so that no other process takes them for left over. Raises `FleetError`."""
    lock = _lock_of(store, name)
    try:
        make_folder(lock.parent)
    except OSError as error:
        raise unusable(lock, error) from error
    with try_lock(lock):
        yield


def remove_lock(store: Store, name: str) -> None:
    with suppress(OSError):
        _lock_of(store, name).unlink()


def _lock_of(store: Store, name: str) -> Path:
    return store.home / "slots" / f"{name}.lock"


# ---- node worktrees --------------------------------------------------------------------------------------------------
# Worktrees on a node: leases of a cached repository, for a manager on another machine.


NODE_PREFIX = "node-"  # of the names that their folders have


@asynccontextmanager
async def open_node_worktrees(store: Store, settings: WorktreeSettings, base: Sha) -> AsyncIterator[Leases]:
    """Leases for one connection. Several may be open at once: each has a name of its own. Raises `FleetError`."""
    await to_thread.run_sync(end_orphans)
    await remove_unused(store, NODE_PREFIX)
    name = f"{NODE_PREFIX}{token_hex(4)}"
    with taken_name(store, name):
        try:
            included = Included(slots_dir(store, name) / "included")
            async with open_leases(store, settings, name, base, included) as leases:
                yield leases
        finally:
            await to_thread.run_sync(remove_lock, store, name)
            with CancelScope(shield=True), suppress(EffectError):  # what stays is removed by the next connection
                await remove_unused(store, NODE_PREFIX)


def in_use(store: Store) -> bool:
    """Whether a connection has worktrees of this store."""
    return is_taken(store, NODE_PREFIX)
