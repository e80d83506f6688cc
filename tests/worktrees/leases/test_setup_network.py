"""The network for the set-up command alone, and never on what a worker wrote unless it is allowed there, too."""

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fleet.core.base.ids import Sha
from fleet.ports.worktrees import Change
from tests.worktrees.conftest import Bench, OpenBench, make_repository
from worktrees.base.settings import LeaseKind

CONNECT = "(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo reached || echo offline"


@pytest.fixture(params=["overlay", "pool"])
def lease_kind(request: pytest.FixtureRequest) -> LeaseKind:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    files = {"lock.txt": "1\n", "code.txt": "the operator's\n", ".gitignore": "deps/\n"}
    return make_repository(tmp_path / "project", files)


@pytest.fixture
def connect() -> Iterator[str]:
    """A command that says whether a port of this machine can be reached."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        yield CONNECT.format(port=listener.getsockname()[1])


async def made(bench: Bench, commit: Sha) -> str:
    """What the set-up left in a lease of a commit."""
    async with bench.worktrees.lease(commit) as lease:
        result = await lease.workspace.run("cat deps/made", timeout_s=60)
        return " ".join(result.output.split())


async def changed(bench: Bench, script: str) -> Sha:
    async with bench.worktrees.lease(bench.base) as lease:
        await lease.workspace.run(script, timeout_s=60)
        change = await bench.commit(lease)
    assert isinstance(change, Change), change
    return change.commit


@pytest.mark.parametrize(
    ("allowed", "on_base", "on_new_locks"),
    [("none", "offline", "offline"), ("base", "reached", "offline"), ("all", "reached", "reached")],
)
async def test_the_set_up_has_the_network_where_it_is_allowed(
    open_bench: OpenBench, connect: str, allowed: str, on_base: str, on_new_locks: str
) -> None:
    setup = f"mkdir -p deps; ({connect}) > deps/made"
    async with open_bench(setup=setup, lock_files=("lock.txt",), setup_network=allowed) as bench:
        assert await made(bench, bench.base) == on_base
        assert await made(bench, await changed(bench, "echo 2 > lock.txt")) == on_new_locks
        runs = bench.worktrees.finished_setups()
        assert {(run.network, run.check.passed) for run in runs if run.commit == bench.base} == {
            (on_base == "reached", True)
        }
        assert bench.worktrees.finished_setups() == ()


async def test_checks_and_workers_stay_without_it(open_bench: OpenBench, connect: str) -> None:
    async with open_bench(setup="true", setup_network="all") as bench, bench.worktrees.lease(bench.base) as lease:
        result = await lease.workspace.run(connect, timeout_s=60)
        assert result.output.strip() == "offline"


async def test_what_a_worker_wrote_is_not_set_up_with_the_network(open_bench: OpenBench, connect: str) -> None:
    """The first lease after a resume is of the tip, where the set-up is the base's and the files are a worker's."""
    setup = f"mkdir -p deps; (cat code.txt; {connect}) > deps/made"
    async with open_bench(setup=setup, lock_files=("lock.txt",), setup_network="base") as bench:
        tip = await changed(bench, "echo a worker wrote this > code.txt")
    async with open_bench(setup=setup, lock_files=("lock.txt",), setup_network="base") as bench:
        assert await made(bench, tip) == "the operator's reached"
        async with bench.worktrees.lease(tip) as lease:
            assert (await lease.workspace.run("cat code.txt", timeout_s=60)).output == "a worker wrote this\n"


async def test_a_file_of_a_worker_in_the_way_of_the_set_up_does_not_give_it_the_network(
    open_bench: OpenBench, connect: str
) -> None:
    setup = f"mkdir -p deps; (cat code.txt; {connect}) > deps/made"
    async with open_bench(setup=setup, lock_files=("lock.txt",), setup_network="base") as bench:
        mine = "sed -i /deps/d .gitignore; rm -rf deps; mkdir deps; echo mine > deps/mine; echo a worker > code.txt"
        tip = await changed(bench, mine)
        text = await made(bench, tip)
        assert "a worker reached" not in text
        async with bench.worktrees.lease(tip) as lease:
            assert (await lease.workspace.run("cat deps/mine", timeout_s=60)).output == "mine\n"
