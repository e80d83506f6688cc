"""What a node holds for all runs of all managers: caches of repositories, and reports that wait to be fetched."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from anyio import to_thread

from fleet.nodes.messages import Cleaned, Inspected
from fleet.nodes.spool import Spool
from worktrees.leases.node_worktrees import in_use
from worktrees.store.node_store import caches_dir
from worktrees.store.packs import cached_count
from worktrees.store.store import Store

ORDERS = "node/orders"
_TRASH = ".deleted-"


@dataclass(frozen=True, slots=True)
class NodeCaches:
    """Satisfies `Caches`."""

    state_dir: Path

    async def inspect(self) -> Inspected:
        homes = await to_thread.run_sync(self._homes)
        commits = [await _commits(home) for home in homes]
        at_work = await to_thread.run_sync(lambda: [key for spool in self._spools() for key in _working(spool)])
        attempts = sum("/attempt/" in key for key in at_work)
        return Inspected(
            attempts=attempts,
            checks=len(at_work) - attempts,
            reports=await to_thread.run_sync(lambda: sum(len(spool.reports()) for spool in self._spools())),
            repositories=len(homes),
            commits=sum(commits),
            bytes=await to_thread.run_sync(self._bytes),
        )

    async def clean(self, repository: str = "") -> Cleaned:
        """Delete what no run uses: caches, and reports whose manager never came back for them."""
        before, kept = await to_thread.run_sync(self._bytes), 0
        for home in await to_thread.run_sync(self._homes):
            if repository in {"", home.name}:
                kept += not await self._delete(home)
        return Cleaned(bytes=max(0, before - await to_thread.run_sync(self._bytes)), in_use=kept)

    async def _delete(self, home: Path) -> bool:
        """Delete the cache of a repository and the reports about it. Whoever opens it meanwhile makes a new one."""
        store = Store(home)
        try:
            async with store.administration():
                if await to_thread.run_sync(in_use, store):
                    return False
                aside = home.with_name(f"{_TRASH}{token_hex(4)}")
                await to_thread.run_sync(home.rename, aside)
        finally:
            await store.close()
        await to_thread.run_sync(lambda: shutil.rmtree(aside, ignore_errors=True))
        orders = self.state_dir / ORDERS / home.name
        await to_thread.run_sync(lambda: shutil.rmtree(orders, ignore_errors=True))
        return True

    def _homes(self) -> list[Path]:
        """The caches; what a clean-up that was killed left behind is deleted."""
        folder = caches_dir(self.state_dir)
        homes = sorted(folder.iterdir()) if folder.is_dir() else []
        for home in homes:
            if home.name.startswith(_TRASH):
                shutil.rmtree(home, ignore_errors=True)
        return [home for home in homes if home.is_dir() and not home.name.startswith(".")]

    def _spools(self) -> Iterator[Spool]:
        yield from (Spool(folder) for folder in sorted((self.state_dir / ORDERS).glob("*/*")) if folder.is_dir())

    def _bytes(self) -> int:
        return sum(_size(folder) for folder in (caches_dir(self.state_dir), self.state_dir / ORDERS))


def _working(spool: Spool) -> list[str]:
    return [key for key in spool.keys() if spool.is_locked(key)]  # noqa: SIM118 - not a dictionary


async def _commits(home: Path) -> int:
    store = Store(home)
    try:
        return await cached_count(store)
    finally:
        await store.close()


def _size(folder: Path) -> int:
    """The bytes of a folder on the disk. What vanishes meanwhile counts nothing."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_blocks * 512  # noqa: PTH118 - a path each would cost half
            except OSError:
                continue
    return total
