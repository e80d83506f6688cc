"""The pool: worktrees that git knows."""

from pathlib import Path
from shutil import rmtree

import pytest
from anyio import create_task_group, move_on_after, sleep_forever

from fleet.core.facts import Failure
from fleet.ports import Broken, Change
from tests.worktrees.conftest import RUN, Bench, OpenBench
from worktrees.settings import LeaseKind
from worktrees.slots import slots_dir


@pytest.fixture
def lease_kind() -> LeaseKind:
    return "pool"


def trees(folder: Path) -> list[str]:
    """The worktrees in a folder of slots."""
    return sorted(path.name for path in folder.iterdir() if path.name.isdigit())


async def test_a_slot_is_leased_again(bench: Bench) -> None:
    for _ in range(3):
        async with bench.hands.lease(bench.base) as lease:
            await lease.desk.write("left.txt", b"behind")
    assert trees(slots_dir(bench.hands.store, RUN)) == ["1"]


async def test_a_slot_that_somebody_deleted_is_replaced(bench: Bench) -> None:
    async with bench.hands.lease(bench.base):
        pass
    slots = slots_dir(bench.hands.store, RUN)
    rmtree(slots)
    async with bench.hands.lease(bench.base) as lease:
        assert await lease.desk.read("README.md") == b"hello\n"
    rmtree(slots)
    await bench.hands.store.git("worktree", "prune", "--expire=now")
    with pytest.raises(Broken):
        async with bench.hands.lease(bench.base):
            pass
    async with bench.hands.lease(bench.base) as lease:
        assert await lease.desk.read("README.md") == b"hello\n"


async def test_closing_removes_every_slot_also_when_cancelled(open_bench: OpenBench) -> None:
    with move_on_after(1.5):
        async with open_bench() as bench, create_task_group() as group:
            store = bench.hands.store

            async def tenant() -> None:
                async with bench.hands.lease(bench.base) as lease:
                    await lease.desk.run("sleep 600", timeout_s=600)

            for _ in range(4):
                group.start_soon(tenant)
            await sleep_forever()
    assert not slots_dir(store, RUN).exists()
    assert (await store.git("worktree", "list", "--porcelain")).count(b"worktree ") == 1


async def test_slots_of_a_dead_run_are_removed_when_it_is_opened_again(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        store = bench.hands.store
    left = slots_dir(store, RUN) / "1"
    await store.git("worktree", "add", "--quiet", "--detach", str(left), bench.base)
    async with open_bench() as bench:
        assert not left.exists()
        async with bench.hands.lease(bench.base) as lease:
            assert await lease.desk.read("README.md") == b"hello\n"


async def test_idle_worktrees_go_when_the_pool_takes_too_much_room(open_bench: OpenBench) -> None:
    async with open_bench(max_pool_bytes=200_000) as bench:
        folder = slots_dir(bench.hands.store, RUN)
        async with bench.hands.lease(bench.base), bench.hands.lease(bench.base) as big:
            await big.desk.run("head -c 1000000 /dev/zero > big", timeout_s=60)
        assert trees(folder) == ["1", "2"]
        async with bench.hands.lease(bench.base):
            assert len(trees(folder)) <= 2
        async with bench.hands.lease(bench.base), bench.hands.lease(bench.base):
            pass
        sizes = [path.stat().st_size for path in folder.rglob("big")]
        assert sizes == []
        listed = await bench.hands.store.git("worktree", "list", "--porcelain")
        assert listed.count(b"worktree ") == 1 + len(trees(folder))


async def test_a_pool_worktree_may_hold_many_files_of_the_repository_itself(open_bench: OpenBench) -> None:
    async with open_bench(max_files=4) as bench, bench.hands.lease(bench.base) as lease:
        await lease.desk.run("touch 1 2 3", timeout_s=60)
        assert isinstance(await bench.commit(lease), Change)
        await lease.desk.run("touch $(seq 4 20)", timeout_s=60)
        refused = await bench.commit(lease)
        assert isinstance(refused, Failure)
        assert "there are more than" in refused.evidence
