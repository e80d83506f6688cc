"""Leases: many at once, and nothing of the last tenant for the next."""

from pathlib import Path
from shutil import rmtree

import pytest
from anyio import Event, create_task_group, move_on_after, sleep_forever

from fleet.core.facts import Failure
from fleet.ports import Broken, DeskError
from tests.worktrees.conftest import RUN, Bench, OpenBench, git
from worktrees.slots import slots_dir


async def test_forty_leases_at_once_each_have_their_own_clean_worktree(bench: Bench) -> None:
    roots: set[Path] = set()
    everyone = Event()

    async def tenant(number: int) -> None:
        async with bench.hands.lease(bench.base) as lease:
            roots.add(lease.slot.tree)  # type: ignore[attr-defined]
            await lease.desk.write("mine.txt", str(number).encode())
            if len(roots) == 40:
                everyone.set()
            await everyone.wait()
            assert await lease.desk.read("mine.txt") == str(number).encode()

    async with create_task_group() as group:
        for number in range(40):
            group.start_soon(tenant, number)
    assert len(roots) == 40


async def test_the_next_tenant_finds_nothing_of_the_last(bench: Bench) -> None:
    async with bench.hands.lease(bench.base) as lease:
        mess = """
        echo changed > README.md; rm src/one.py; echo x > debug.log; mkdir -p node_modules/a; echo y > node_modules/a/b
        chmod 000 .gitignore; mkdir locked; echo z > locked/z; chmod 000 locked; ln -s /etc/passwd link
        chmod 4755 README.md; mkdir -p sub/.git; echo x > sub/.git/HEAD; mkfifo pipe
        """
        assert (await lease.desk.run(mess, timeout_s=20)).exit_code == 0
    for _ in range(2):
        async with bench.hands.lease(bench.base) as lease:
            show = "find . -path ./.git -o -type f -print | sort; cat README.md .gitignore"
            seen = await lease.desk.run(show, timeout_s=20)
            assert seen.output == "./.gitignore\n./README.md\n./src/one.py\nhello\n*.log\n"
            everything = await lease.desk.run("find . | sort | tr '\\n' ' '", timeout_s=20)
            assert everything.output == ". ./.git ./.gitignore ./README.md ./src ./src/one.py "
    assert len(list(slots_dir(bench.hands.store, RUN).iterdir())) == 1


async def test_a_tree_thousands_deep_is_removed(bench: Bench) -> None:
    async with bench.hands.lease(bench.base) as lease:
        dig = "deep=$(printf 'd/%.0s' $(seq 1500)); mkdir -p $deep && cd $deep && mkdir -p $deep"
        assert (await lease.desk.run(dig, timeout_s=60)).exit_code == 0
    async with bench.hands.lease(bench.base) as lease:
        assert list(await lease.desk.list(".")) == [".gitignore", "README.md", "src/", "src/one.py"]


async def test_paths_longer_than_the_system_takes_are_refused_and_removed(bench: Bench) -> None:
    async with bench.hands.lease(bench.base) as lease:
        long = "long=$(printf 'x%.0s' $(seq 250)); for i in $(seq 20); do mkdir $long && cd $long; done"
        dig = f"{long}; echo x > y; pwd | wc -c"
        assert int((await lease.desk.run(dig, timeout_s=60)).output) > 4096
        failure = await bench.commit(lease)
        assert isinstance(failure, Failure)
        assert "File name too long" in failure.evidence
    async with bench.hands.lease(bench.base) as lease:
        assert list(await lease.desk.list(".")) == [".gitignore", "README.md", "src/", "src/one.py"]


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


async def test_a_slot_moves_to_another_base(bench: Bench) -> None:
    member = await bench.change("one", {"src/two.py": "TWO = 2\n"})
    async with bench.hands.lease(member.commit) as lease:
        assert await lease.desk.read("src/two.py") == b"TWO = 2\n"
    async with bench.hands.lease(bench.base) as lease:
        assert list(await lease.desk.list("src")) == ["one.py"]


async def test_a_submodules_folder_is_emptied_too(repository: Path, open_bench: OpenBench) -> None:
    head = git(repository, "rev-parse", "HEAD")
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{head},sub")
    git(repository, "commit", "--quiet", "-m", "a submodule")
    async with open_bench() as bench:
        async with bench.hands.lease(bench.base) as lease:
            await lease.desk.write("sub/left", b"behind")
        async with bench.hands.lease(bench.base) as lease:
            assert list(await lease.desk.list("sub")) == []


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


async def test_a_desk_that_was_given_back_is_closed(bench: Bench) -> None:
    async with bench.hands.lease(bench.base) as lease:
        desk = lease.desk
    with pytest.raises(DeskError, match="given back"):
        await desk.run("true", timeout_s=5)
