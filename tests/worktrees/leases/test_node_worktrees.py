"""What a killed node left of its worktrees is removed by its next connection, before its work and after it."""

from pathlib import Path

import pytest

from tests.worktrees.conftest import product_settings, sha_at
from worktrees.leases.run_worktrees import NODE_PREFIX, open_node_worktrees, reserve_name
from worktrees.store.store import Store, open_store
from worktrees.target.target import inspect

pytestmark = pytest.mark.anyio


def leave(store: Store, name: str) -> Path:
    folder = store.home / "slots" / f"{NODE_PREFIX}{name}" / "1"
    folder.mkdir(parents=True)
    (folder / "left.txt").write_text("left\n")
    return folder.parent


async def test_only_what_another_connection_holds_stays(repository: Path, tmp_path: Path) -> None:
    settings, target = product_settings(tmp_path / "state"), await inspect(repository)
    store = await open_store(settings.state_dir, target, target.base)
    try:
        unlocked, taken = leave(store, "dead"), leave(store, "other")
        locked = leave(store, "killed")
        (locked.parent / f"{locked.name}.lock").touch()
        with reserve_name(store, taken.name):
            async with open_node_worktrees(store, settings, sha_at(repository)):
                assert not unlocked.exists()
                assert not locked.exists()
                late = leave(store, "dying")  # by what a killed process had started
            assert not late.exists()
            assert [path.name for path in (store.home / "slots").iterdir() if path.is_dir()] == [taken.name]
    finally:
        await store.close()
