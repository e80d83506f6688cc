"""The pool: worktrees that git knows."""

from pathlib import Path
from shutil import rmtree

import pytest

from fleet.core.facts.facts import Failure
from fleet.ports.worktrees import Change, EffectError
from tests.worktrees.conftest import RUN, Bench, OpenBench
from worktrees.base.settings import LeaseKind
from worktrees.store.store import slots_dir


@pytest.fixture
def lease_kind() -> LeaseKind:
    return "pool"


def trees(folder: Path) -> list[str]:
    """The worktrees in a folder of slots."""
    return sorted(path.name for path in folder.iterdir() if path.name.isdigit())


async def test_a_slot_is_leased_again(bench: Bench) -> None:
    for _ in range(3):
        async with bench.worktrees.lease(bench.base) as lease:
            await lease.workspace.write("left.txt", b"behind")
    assert trees(slots_dir(bench.worktrees.store, RUN)) == ["1"]


async def test_a_slot_that_was_deleted_is_replaced(bench: Bench) -> None:
    async with bench.worktrees.lease(bench.base):
        pass
    slots = slots_dir(bench.worktrees.store, RUN)
    rmtree(slots)
    async with bench.worktrees.lease(bench.base) as lease:
        assert await lease.workspace.read("README.md") == b"hello\n"
    rmtree(slots)
    await bench.worktrees.store.git("worktree", "prune", "--expire=now")
    with pytest.raises(EffectError):
        async with bench.worktrees.lease(bench.base):
            pass
    async with bench.worktrees.lease(bench.base) as lease:
        assert await lease.workspace.read("README.md") == b"hello\n"


async def test_slots_of_a_dead_run_are_removed_when_it_is_opened_again(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        store = bench.worktrees.store
    leftover = slots_dir(store, RUN) / "1"
    await store.git("worktree", "add", "--quiet", "--detach", str(leftover), bench.base)
    async with open_bench() as bench:
        assert not leftover.exists()
        async with bench.worktrees.lease(bench.base) as lease:
            assert await lease.workspace.read("README.md") == b"hello\n"


async def test_idle_worktrees_are_removed_when_the_pool_takes_too_much_space(open_bench: OpenBench) -> None:
    async with open_bench(max_gb=0.0002) as bench:
        folder = slots_dir(bench.worktrees.store, RUN)
        async with bench.worktrees.lease(bench.base), bench.worktrees.lease(bench.base) as big:
            await big.workspace.run("head -c 1000000 /dev/zero > big", timeout_s=60)
        assert trees(folder) == ["1", "2"]
        async with bench.worktrees.lease(bench.base):
            assert len(trees(folder)) <= 2
        async with bench.worktrees.lease(bench.base), bench.worktrees.lease(bench.base):
            pass
        sizes = [path.stat().st_size for path in folder.rglob("big")]
        assert sizes == []
        listed = await bench.worktrees.store.git("worktree", "list", "--porcelain")
        assert listed.count(b"worktree ") == 1 + len(trees(folder))


async def test_a_pool_worktree_may_hold_many_files_of_the_repository_itself(open_bench: OpenBench) -> None:
    async with open_bench(max_files=4) as bench, bench.worktrees.lease(bench.base) as lease:
        await lease.workspace.run("touch 1 2 3", timeout_s=60)
        assert isinstance(await bench.commit(lease), Change)
        await lease.workspace.run("touch $(seq 4 20)", timeout_s=60)
        refused = await bench.commit(lease)
        assert isinstance(refused, Failure)
        assert "contains more than" in refused.evidence
