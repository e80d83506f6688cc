"""A run that goes on where somebody deleted what it had in its store."""

from pathlib import Path

from fleet.core.ids import base_ref, tip_ref
from tests.worktrees.conftest import RUN, git, make_repository
from worktrees.store import begin_run, open_store
from worktrees.target import inspect


async def test_refs_that_were_deleted_are_what_the_journal_says(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "work")
    target = await inspect(repository, None)
    base = target.base
    tip = git(repository, "commit-tree", f"{base}^{{tree}}", "-p", base, "-m", "landed")
    git(repository, "branch", "fleet/r1", tip)
    store = await open_store(tmp_path / "state", target, base, tip)
    await begin_run(store, RUN, base, tip)
    assert await store.git.sha(tip_ref(RUN)) == tip
    assert await store.git.sha(base_ref(RUN)) == base


async def test_a_commit_that_a_new_store_lacks_comes_from_the_result_branch(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "work")
    target = await inspect(repository, None)
    await open_store(tmp_path / "state", target, target.base)
    tip = git(repository, "commit-tree", f"{target.base}^{{tree}}", "-p", target.base, "-m", "landed later")
    git(repository, "branch", "fleet/r1", tip)
    store = await open_store(tmp_path / "state", target, target.base, tip)
    assert await store.git.sha(tip) == tip
