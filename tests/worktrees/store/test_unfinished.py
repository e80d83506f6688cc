"""What killed processes left in a store's home goes with the next opening; what others are at stays."""

import os
from pathlib import Path

from tests.worktrees.conftest import make_repository
from worktrees.store.store import home_of, new_prefix, open_store
from worktrees.target.target import inspect

NOBODY = 4_194_305  # no process has such a number


async def test_folders_of_processes_that_are_gone_are_removed_and_no_others(tmp_path: Path) -> None:
    target = await inspect(make_repository(tmp_path / "work", {"a": "1\n"}))
    home = home_of(tmp_path / "state", target)
    home.mkdir(parents=True)
    kept, gone = home / f"{new_prefix('intake-')}x", (home / f"new-{NOBODY}-intake-y", home / "new-z")
    for folder in (kept, *gone):
        (folder / "ab").mkdir(parents=True)
    store = await open_store(tmp_path / "state", target, target.base)
    try:
        assert kept.name.startswith(f"new-{os.getpid()}-")
        assert sorted(home.glob("new-*")) == [kept]
    finally:
        await store.close()
