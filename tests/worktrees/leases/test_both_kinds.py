"""Leases of both kinds: many at once, and nothing of one tenant reaches the next."""

from pathlib import Path

import pytest
from anyio import Event, create_task_group, move_on_after, sleep_forever

from fleet.core.facts.facts import Failure
from fleet.ports.agents import WorkspaceError
from tests.worktrees.conftest import RUN, Bench, OpenBench, git
from worktrees.base.settings import LeaseKind
from worktrees.store.store import slots_dir


@pytest.fixture(params=["overlay", "pool"])
def lease_kind(request: pytest.FixtureRequest) -> LeaseKind:
    return request.param  # type: ignore[no-any-return]


@pytest.mark.parametrize("rounds", [2, pytest.param(10, marks=pytest.mark.thorough)])
async def test_a_hundred_leases_at_once_never_fail_and_each_has_its_own_clean_worktree(
    bench: Bench, rounds: int
) -> None:
    for _ in range(rounds):
        assert await a_hundred_at_once(bench) == ["0", "20", "40", "60", "80"]


async def a_hundred_at_once(bench: Bench) -> list[str]:
    """All hundred hold their leases at once, and a few work in theirs. Returns the output of those."""
    holders, everyone, outputs = list[int](), Event(), list[str]()

    async def tenant(number: int) -> None:
        async with bench.worktrees.lease(bench.base) as lease:
            holders.append(number)
            if len(holders) == 100:
                everyone.set()
            await everyone.wait()
            if number % 20 == 0:
                await lease.workspace.write("mine.txt", str(number).encode())
                outputs.append((await lease.workspace.run("cat *.txt", timeout_s=60)).output)

    async with create_task_group() as group:
        for number in range(100):
            group.start_soon(tenant, number)
    return sorted(outputs)


async def test_the_next_tenant_finds_nothing_of_the_last(bench: Bench) -> None:
    async with bench.worktrees.lease(bench.base) as lease:
        mess = """
        echo changed > README.md; rm src/one.py; echo x > debug.log; mkdir -p node_modules/a; echo y > node_modules/a/b
        chmod 000 .gitignore; mkdir locked; echo z > locked/z; chmod 000 locked; ln -s /etc/passwd link
        chmod 4755 README.md; mkdir -p sub/.git; echo x > sub/.git/HEAD; mkfifo pipe
        """
        assert (await lease.workspace.run(mess, timeout_s=20)).exit_code == 0
    for _ in range(2):
        async with bench.worktrees.lease(bench.base) as lease:
            show = "find . -path ./.git -o -type f -print | sort; cat README.md .gitignore"
            shown = await lease.workspace.run(show, timeout_s=20)
            assert shown.output == "./.gitignore\n./README.md\n./src/one.py\nhello\n*.log\n"
            everything = await lease.workspace.run("find . | sort | tr '\\n' ' '", timeout_s=20)
            assert everything.output == ". ./.git ./.gitignore ./README.md ./src ./src/one.py "


async def test_a_tree_thousands_deep_is_removed(bench: Bench) -> None:
    async with bench.worktrees.lease(bench.base) as lease:
        dig = "deep=$(printf 'd/%.0s' $(seq 1500)); mkdir -p $deep && cd $deep && mkdir -p $deep"
        assert (await lease.workspace.run(dig, timeout_s=60)).exit_code == 0
    async with bench.worktrees.lease(bench.base) as lease:
        assert list(await lease.workspace.list(".")) == [".gitignore", "README.md", "src/", "src/one.py"]


async def test_paths_longer_than_the_system_takes_are_refused_and_removed(bench: Bench) -> None:
    async with bench.worktrees.lease(bench.base) as lease:
        long = "long=$(printf 'x%.0s' $(seq 250)); for i in $(seq 20); do mkdir $long && cd $long; done"
        dig = f"{long}; echo x > y; pwd | wc -c"
        assert int((await lease.workspace.run(dig, timeout_s=60)).output) > 4096
        failure = await bench.commit(lease)
        assert isinstance(failure, Failure)
        assert "File name too long" in failure.evidence
    async with bench.worktrees.lease(bench.base) as lease:
        assert list(await lease.workspace.list(".")) == [".gitignore", "README.md", "src/", "src/one.py"]


async def test_a_slot_moves_to_another_base(bench: Bench) -> None:
    member = await bench.change("one", {"src/two.py": "TWO = 2\n"})
    async with bench.worktrees.lease(member.commit) as lease:
        assert await lease.workspace.read("src/two.py") == b"TWO = 2\n"
    async with bench.worktrees.lease(bench.base) as lease:
        assert list(await lease.workspace.list("src")) == ["one.py"]


async def test_a_submodules_folder_is_emptied_too(repository: Path, open_bench: OpenBench) -> None:
    head = git(repository, "rev-parse", "HEAD")
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{head},sub")
    git(repository, "commit", "--quiet", "-m", "a submodule")
    async with open_bench() as bench:
        async with bench.worktrees.lease(bench.base) as lease:
            await lease.workspace.write("sub/left", b"behind")
        async with bench.worktrees.lease(bench.base) as lease:
            assert list(await lease.workspace.list("sub")) == []


async def test_a_workspace_is_closed_when_its_lease_is_given_back(bench: Bench) -> None:
    async with bench.worktrees.lease(bench.base) as lease:
        workspace = lease.workspace
    with pytest.raises(WorkspaceError, match="was released"):
        await workspace.run("true", timeout_s=5)


async def test_closing_leaves_nothing_also_when_cancelled(open_bench: OpenBench) -> None:
    with move_on_after(2):
        async with open_bench() as bench, create_task_group() as group:
            store = bench.worktrees.store

            async def tenant() -> None:
                async with bench.worktrees.lease(bench.base) as lease:
                    await lease.workspace.run("sleep 600", timeout_s=600)

            for _ in range(4):
                group.start_soon(tenant)
            await sleep_forever()
    assert not slots_dir(store, RUN).exists()
    assert (await store.git("worktree", "list", "--porcelain")).count(b"worktree ") == 1
