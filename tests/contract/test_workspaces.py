"""The guarantees of a worktree that workers rely on: of one in the box, and of the folder in their tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fleet.ports.agents import Extras, Workspace, WorkspaceError
from tests.agents.conftest import FolderWorkspace
from tests.worktrees.conftest import RUN, make_repository, product_settings
from worktrees.leases.run_worktrees import open_worktrees
from worktrees.target.target import inspect


@pytest.fixture(params=["folder", "box"])
async def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Workspace]:
    if request.param == "folder":
        folder = tmp_path / "tree"
        folder.mkdir()
        yield FolderWorkspace(folder)
        return
    target = await inspect(make_repository(tmp_path / "project"))
    settings = product_settings(tmp_path / "state")
    async with (
        open_worktrees(target, settings, RUN, target.base) as opened,
        opened.lease(target.base) as lease,
    ):
        yield lease.workspace


async def test_a_command_runs_at_the_root_with_both_streams_in_order(workspace: Workspace) -> None:
    done = await workspace.run("pwd; echo out; echo err >&2; exit 3", timeout_s=30)
    assert (done.exit_code, done.timed_out) == (3, False)
    assert done.output.splitlines() == [workspace.root, "out", "err"]


async def test_a_command_that_takes_too_long_is_stopped(workspace: Workspace) -> None:
    assert (await workspace.run("sleep 60", timeout_s=0.3)).timed_out


async def test_extras_are_variables_of_one_command(workspace: Workspace) -> None:
    extras, command = Extras(environment={"GREETING": "hi"}), "echo $GREETING"
    assert (await workspace.run(command, timeout_s=30, extras=extras)).output == "hi\n"
    assert (await workspace.run(command, timeout_s=30)).output == "\n"


async def test_what_is_written_is_read_by_commands_and_files_alike(workspace: Workspace) -> None:
    await workspace.write("new/greeting.txt", b"hello\x00\xff")
    assert await workspace.read("new/greeting.txt") == b"hello\x00\xff"
    assert (await workspace.run("wc -c < new/greeting.txt", timeout_s=30)).output.strip() == "7"
    assert "new/" in await workspace.list(".")
    assert await workspace.list("new") == ["greeting.txt"]


@pytest.mark.parametrize("path", ["missing.txt", "../outside.txt", "/etc/passwd"])
async def test_what_is_missing_or_outside_is_an_error_for_the_worker(workspace: Workspace, path: str) -> None:
    with pytest.raises(WorkspaceError):
        await workspace.read(path)
