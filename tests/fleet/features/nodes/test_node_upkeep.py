"""What a node keeps in order by itself: its temporary files, the refs of its store, and what a full disk means."""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fleet.core.base.ids import Sha
from fleet.core.facts.facts import CheckRun, Failure, Report
from fleet.core.plans.plan import Criterion
from fleet.features.nodes.call_proxy import CallChannel
from fleet.features.nodes.node_config import FOLDERS, LOCK, run_folder_of_nodes, scratch_folder
from fleet.features.nodes.node_process import NodeWorkshop
from fleet.ports.orders import ChecksOrder, Progress
from fleet.ports.worktrees import Change, EffectError
from tests.agents.conftest import FolderWorkspace, Script, settings_for, worker_settings
from tests.fleet.features.nodes.conftest import MADE, SHA, attempt
from tests.worktrees.conftest import git
from worktrees.store.packs import CACHE, drop_pins, open_node_store

ENDLESS = 2**60  # bytes: no disk has that much left


def test_temporary_files_are_made_in_a_folder_that_is_gone_afterwards(tmp_path: Path) -> None:
    before = tempfile.gettempdir()
    with scratch_folder(tmp_path) as folder, tempfile.NamedTemporaryFile(delete=False) as file:
        assert Path(file.name).parent == folder
    assert list((tmp_path / FOLDERS).iterdir()) == []
    assert tempfile.gettempdir() == before


def test_what_a_killed_process_left_is_removed_and_what_another_one_uses_stays(tmp_path: Path) -> None:
    left = tmp_path / FOLDERS / "left"
    left.mkdir(parents=True)
    (left / LOCK).touch()
    (left / "file").touch()
    with scratch_folder(tmp_path) as one, scratch_folder(tmp_path) as other:
        assert {path.name for path in (tmp_path / FOLDERS).iterdir()} == {one.name, other.name}


def test_what_a_killed_engine_left_for_its_nodes_is_removed_by_the_next_and_nothing_of_others(
    tmp_path: Path,
) -> None:
    with run_folder_of_nodes(tmp_path / "run") as first:
        (first / "socket").touch()
        with run_folder_of_nodes(tmp_path / "run") as again:
            assert again == first
            assert list(again.iterdir()) == []
    assert not first.exists()
    (other := tmp_path / "other").mkdir()
    first.symlink_to(other)
    try:
        with run_folder_of_nodes(tmp_path / "run") as own:
            assert own != first
            assert not own.is_symlink()
            (own / "socket").touch()
        assert not own.exists()
        assert (first.is_symlink(), list(other.iterdir())) == (True, [])
    finally:
        first.unlink()


async def test_only_the_cache_keeps_its_refs(tmp_path: Path) -> None:
    store = await open_node_store(tmp_path, "repo-1", "sha1")
    try:
        tree = git(store.git_dir, "hash-object", "-w", "-t", "tree", "/dev/null")
        commit = Sha(git(store.git_dir, "commit-tree", "-m", "x", tree))
        cached = f"{CACHE}/{commit}"
        for ref in (cached, "refs/fleet/r/attempts/a/1", "refs/fleet/r/kept/b/2"):
            await store.repository.refs.pin(ref, commit)
        await drop_pins(store)
        await drop_pins(store)
        assert git(store.git_dir, "for-each-ref", "--format=%(refname)") == cached
    finally:
        await store.close()


@dataclass(frozen=True)
class ScriptedLease:
    """Gives itself out as a lease: its checks pass or not, and its commits come out so."""

    committed: Change | Failure
    workspace: FolderWorkspace

    @asynccontextmanager
    async def lease(self, commit: Sha) -> AsyncIterator["ScriptedLease"]:
        del commit
        yield self

    async def commit(self, *_: object, **named: object) -> Change | Failure:
        del named
        return self.committed

    async def check(self, criterion: Criterion, **_: object) -> CheckRun:
        return CheckRun(criterion=criterion.criterion, command="", passed=isinstance(self.committed, Change))


def workshop(folder: Path, needed: int, outcome: Report | Failure, committed: Change | Failure) -> NodeWorkshop:
    """The worker is a program that comes out so."""
    program = worker_settings(kind="command", command=("true" if outcome == DONE else "false",))
    settings = settings_for(Script(), folder, workers={"step": program})
    leases: Any = ScriptedLease(committed, FolderWorkspace(folder))
    return NodeWorkshop(leases.lease, settings, frozenset({"step"}), folder, needed)


DONE, FAILED = Report(status="done", summary=""), Failure(kind="other", summary="exit code 1")
MADE_IT = Change(MADE, ())


async def _ignore(_: Progress) -> None:
    pass


@pytest.mark.parametrize(
    ("outcome", "committed", "needed", "blamed"),
    [
        (FAILED, FAILED, ENDLESS, False),
        (DONE, FAILED, ENDLESS, False),
        (FAILED, FAILED, 0, True),
        (DONE, MADE_IT, 0, True),
    ],
)
async def test_work_that_failed_on_a_full_disk_is_not_to_blame(
    outcome: Report | Failure, committed: Change | Failure, needed: int, blamed: bool, tmp_path: Path
) -> None:
    node = workshop(tmp_path, needed, outcome, committed)
    if blamed:
        result = await node.attempt(attempt(), CallChannel(), _ignore)
        assert (result.finished, result.committed) == (outcome == DONE, committed)
        return
    with pytest.raises(EffectError, match="the disk is full"):
        await node.attempt(attempt(), CallChannel(), _ignore)


async def test_a_red_check_on_a_full_disk_proves_nothing_and_a_green_one_does(tmp_path: Path) -> None:
    order = ChecksOrder(SHA, (Criterion(criterion="c", run="true"),))
    with pytest.raises(EffectError, match="the disk is full"):
        await workshop(tmp_path, ENDLESS, FAILED, FAILED).check(order)
    [run] = await workshop(tmp_path, ENDLESS, DONE, MADE_IT).check(order)
    assert run.passed
