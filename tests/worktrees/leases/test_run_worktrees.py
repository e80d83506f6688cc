"""The worktrees of a run as a whole: from a lease to the user's repository, and what is left when they are closed."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fleet.core.base.ids import Sha, SubtaskId
from fleet.core.facts.facts import Member
from fleet.errors import FleetError
from fleet.ports.worktrees import Change, Integrator, Publish, Recover, Worktrees
from tests.worktrees import forest
from tests.worktrees.conftest import RUN, Bench, OpenBench, fingerprint, git, product_settings
from worktrees.base.settings import WorktreeSettings
from worktrees.leases.gc import clean_run
from worktrees.leases.run_worktrees import RunWorktrees, open_worktrees
from worktrees.sandbox.self_test import find_sandbox_problems
from worktrees.target.target import inspect

ONE = SubtaskId("one")

if TYPE_CHECKING:

    def ports(worktrees: RunWorktrees) -> tuple[Worktrees, Recover, Integrator, Publish]:
        return worktrees, worktrees.recover, worktrees.integrator, worktrees.publisher.publish


async def land(bench: Bench, member: Member) -> Sha:
    old = await bench.worktrees.integrator.tip(RUN)
    merged = await bench.worktrees.integrator.merge(old, [member])
    assert merged.conflicts == ()
    assert await bench.worktrees.integrator.advance(RUN, new=merged.tip, old=old)
    return merged.tip


async def test_a_change_is_published_and_nothing_else_of_the_users_changes(
    repository: Path, open_bench: OpenBench
) -> None:
    (repository / "README.md").write_text("edited\n", encoding="utf-8")
    git(repository, "stash")
    (repository / "staged.txt").write_text("staged\n", encoding="utf-8")
    git(repository, "add", "staged.txt")
    hook = repository / ".git" / "hooks" / "post-receive"
    hook.write_text(f"#!/bin/sh\ntouch {repository}/hook-ran\n", encoding="utf-8")
    hook.chmod(0o755)
    before = fingerprint(repository)
    async with open_bench() as bench:
        async with bench.worktrees.lease(bench.base) as lease:
            result = await lease.workspace.run("echo 'TWO = 2' > src/two.py && ls src", timeout_s=20)
            assert (result.exit_code, result.output) == (0, "one.py\ntwo.py\n")
            change = await bench.commit(lease)
            assert isinstance(change, Change)
            assert change.paths == ("src/two.py",)
        tip = await land(bench, Member(subtask="one", attempt=1, commit=change.commit))
        assert await bench.worktrees.publisher.publish(RUN, tip=tip) is None
        assert await bench.worktrees.publisher.publish(RUN, tip=tip) is None, "publishing twice is publishing once"
        assert [member.subtask for member in await bench.worktrees.integrator.landed_since(RUN, bench.base)] == ["one"]
        assert await bench.worktrees.pinned(RUN, ONE, 1) == change
        assert "+TWO = 2" in await bench.worktrees.diff(bench.base, change.commit)
    assert fingerprint(repository) == before
    assert git(repository, "show", "fleet/r1:src/two.py") == "TWO = 2"
    author, message = git(repository, "log", "-1", "--format=%an%n%B", "fleet/r1").split("\n", 1)
    assert author == "fleet coder (claude-haiku-5-5)"
    assert message.splitlines()[-5:] == [
        "Fleet-Run: r1",
        "Fleet-Task: one",
        "Fleet-Attempt: 1",
        "Fleet-Worker: coder",
        "Assisted-by: claude-haiku-5-5",
    ]


async def test_a_second_change_moves_the_result_branch_forward(bench: Bench) -> None:
    first = await bench.change("one", {"a.txt": "a\n"})
    assert await bench.worktrees.publisher.publish(RUN, tip=await land(bench, first)) is None
    second = await bench.change("two", {"b.txt": "b\n"}, base=bench.base)
    tip = await land(bench, second)
    assert await bench.worktrees.publisher.publish(RUN, tip=tip) is None
    assert git(bench.repository, "rev-parse", "fleet/r1") == tip
    assert git(bench.repository, "rev-list", "--count", "--merges", "fleet/r1") == "0"


async def test_a_resumed_run_keeps_its_tip_and_its_pins(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        tip = await land(bench, await bench.change("one", {"a.txt": "a\n"}))
    async with open_bench() as bench:
        assert await bench.worktrees.integrator.tip(RUN) == tip
        pinned = await bench.worktrees.pinned(RUN, ONE, 1)
        assert pinned is not None
        assert pinned.paths == ("a.txt",)
        assert await bench.worktrees.pinned(RUN, ONE, 2) is None


async def test_closed_worktrees_leave_no_process_behind(open_bench: OpenBench) -> None:
    before = forest.children()
    async with open_bench() as bench:
        await land(bench, await bench.change("one", {"a.txt": "a\n"}))
        assert len(forest.children() - before) == 3, "one reads objects, one moves refs, one starts boxes"
    assert forest.children() == before


async def test_the_worktrees_of_a_run_are_opened_once_at_a_time(bench: Bench) -> None:
    with pytest.raises(FleetError, match="another process uses the worktrees"):
        async with open_worktrees(bench.target, bench.settings, RUN, bench.base):
            pass


async def test_the_planner_sees_the_repository_at_a_commit(bench: Bench) -> None:
    repository = bench.worktrees.at(bench.base)
    assert await repository.list_files("src/**") == ["src/one.py"]
    assert await repository.read_file("src/one.py") == "ONE = 1\n"
    assert await repository.search("ONE = ") == "src/one.py:1: ONE = 1"
    assert await repository.search("nowhere") == "nothing found"
    assert "Ada: start" in await repository.history()
    assert await repository.history("src/none.py") == ""
    assert "    1 README.md" in (await repository.history()).partition("changed most often")[2]


async def test_cleaning_removes_what_landed_and_keeps_what_did_not(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        tip = await land(bench, await bench.change("one", {"a.txt": "a\n"}))
        assert await bench.worktrees.publisher.publish(RUN, tip=tip) is None
        await bench.change("stray", {"b.txt": "b\n"})
        busy = await clean_run(bench.settings.state_dir, RUN, refs=True)
        assert busy.in_use
    listed = await clean_run(bench.settings.state_dir, RUN, refs=True, dry_run=True)
    assert listed == await clean_run(bench.settings.state_dir, RUN, refs=True)
    assert listed.refs == ("refs/fleet/r1/attempts/one/1",)
    assert "refs/fleet/r1/attempts/stray/1" in listed.kept


async def test_the_sandbox_test_finds_no_problem_in_a_box_and_names_a_missing_one(settings: WorktreeSettings) -> None:
    assert await find_sandbox_problems(settings) == ()
    bare = product_settings(settings.state_dir, sandbox="none")
    assert "sandbox is disabled" in (await find_sandbox_problems(bare))[0]


async def test_an_unusable_state_folder_is_named_with_what_to_do(
    repository: Path, settings: WorktreeSettings, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    blocked = replace(settings, state_dir=tmp_path / "file")
    target = await inspect(repository)
    with pytest.raises(FleetError, match=r"can't use .*file.* for the state: Not a directory"):
        async with open_worktrees(target, blocked, RUN, target.base):
            pass


async def test_files_are_restored_as_on_the_base_whatever_was_done_to_them(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        script = "rm README.md; mv src moved; echo new > new; mkdir README.md; echo x > README.md/x"
        async with bench.worktrees.lease(bench.base) as lease:
            await lease.workspace.run(script, timeout_s=20)
            change = await bench.commit(lease)
        assert isinstance(change, Change)
        again = await bench.worktrees.put_back(change.commit, bench.base, ["README.md", "src/one.py"])
        store = bench.worktrees.store.git
        names = (await store("ls-tree", "-r", "--name-only", again)).decode().split()
        assert names == [".gitignore", "README.md", "moved/one.py", "new", "src/one.py"]
        assert await store("cat-file", "blob", f"{again}:README.md") == b"hello\n"
        async with bench.worktrees.lease(again) as lease:
            assert (await lease.workspace.run("cat README.md", timeout_s=20)).output == "hello\n"
