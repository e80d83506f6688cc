"""Worktrees on a node: leases of a cached repository, for a manager on another machine."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from secrets import token_hex

from anyio import CancelScope, to_thread

from fleet.core.base.ids import Sha
from fleet.ports.worktrees import EffectError
from worktrees.base.settings import WorktreeSettings
from worktrees.leases.leases import Leases, open_leases
from worktrees.leases.trial_worktrees import is_taken, remove_lock, remove_unused, taken_name
from worktrees.sandbox.ownership import end_orphans
from worktrees.setup.include import Included
from worktrees.store.store import Store, slots_dir

PREFIX = "node-"  # of the names that their folders have


@asynccontextmanager
async def open_node_worktrees(store: Store, settings: WorktreeSettings, base: Sha) -> AsyncIterator[Leases]:
    """Leases for one connection. Several may be open at once: each has a name of its own. Raises `FleetError`."""
    await to_thread.run_sync(end_orphans)
    await remove_unused(store, PREFIX)
    name = f"{PREFIX}{token_hex(4)}"
    with taken_name(store, name):
        try:
            included = Included(slots_dir(store, name) / "included")
            async with open_leases(store, settings, name, base, included) as leases:
                yield leases
        finally:
            await to_thread.run_sync(remove_lock, store, name)
            with CancelScope(shield=True), suppress(EffectError):  # what stays is removed by the next connection
                await remove_unused(store, PREFIX)


def in_use(store: Store) -> bool:
    """Whether a connection has worktrees of this store."""
    return is_taken(store, PREFIX)
