"""Locks that a dead git left are removed; those of a running one, and of other runs, are not."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.worktrees.conftest import RUN, make_repository
from worktrees.store.store import Store, open_store, remove_stale_locks
from worktrees.target.target import inspect

OWN, OTHER, SHARED = "refs/fleet/r1/tip.lock", "refs/fleet/r2/tip.lock", "packed-refs.lock"


@pytest.fixture
async def store(tmp_path: Path) -> Store:
    target = await inspect(make_repository(tmp_path / "work"))
    store = await open_store(tmp_path / "state", target, target.base)
    for name in (OWN, OTHER, SHARED):
        path = store.git_dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return store


@contextmanager
def a_git_at_work(store: Store) -> Iterator[None]:
    env = {"PATH": os.environ["PATH"], "GIT_DIR": str(store.git_dir)}
    with subprocess.Popen(["git", "cat-file", "--batch"], env=env, stdin=subprocess.PIPE) as process:
        yield
        process.kill()


def remaining(store: Store) -> set[str]:
    return {name for name in (OWN, OTHER, SHARED) if (store.git_dir / name).exists()}


async def test_where_no_git_runs_its_locks_are_stale(store: Store) -> None:
    await remove_stale_locks(store, RUN)
    assert remaining(store) == {OTHER}


async def test_where_one_runs_only_our_own_refs_are_cleaned(store: Store) -> None:
    """They are guarded by the run's lock, which the caller holds."""
    with a_git_at_work(store):
        await remove_stale_locks(store, RUN, patience_s=0.1)
    assert remaining(store) == {OTHER, SHARED}


async def test_a_ref_that_was_half_written_names_nothing_and_goes(store: Store) -> None:
    good, bad = store.git_dir / "refs/fleet/r1/base", store.git_dir / "refs/fleet/r1/tip"
    good.write_text("a" * 40 + "\n")
    bad.touch()
    await remove_stale_locks(store, RUN)
    assert good.exists()
    assert not bad.exists()
