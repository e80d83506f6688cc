"""One change all the way, and what the user's repository looks like after it."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fleet.core.facts import Member
from fleet.ports import Change, FleetError, Integrator, Worktrees
from tests.worktrees import forest
from tests.worktrees.conftest import RUN, Bench, OpenBench, fingerprint, git
from worktrees.clean import clean_run
from worktrees.proof import prove
from worktrees.settings import HandSettings
from worktrees.target import inspect
from worktrees.workshop import Workshop, open_workshop

if TYPE_CHECKING:

    def both_ports(hands: Workshop) -> tuple[Worktrees, Integrator]:
        return hands, hands


async def land(bench: Bench, member: Member) -> str:
    old = await bench.hands.tip(RUN)
    merged = await bench.hands.merge(old, [member])
    assert merged.conflicts == ()
    assert await bench.hands.advance(RUN, new=merged.tip, old=old)
    return merged.tip


async def test_a_change_goes_all_the_way_and_nothing_else_of_the_users_changes(
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
        async with bench.hands.lease(bench.base) as lease:
            result = await lease.desk.run("echo 'TWO = 2' > src/two.py && ls src", timeout_s=20)
            assert (result.exit_code, result.output) == (0, "one.py\ntwo.py\n")
            change = await bench.commit(lease)
            assert isinstance(change, Change)
            assert change.paths == ("src/two.py",)
        tip = await land(bench, Member(subtask="one", attempt=1, commit=change.commit))
        assert await bench.hands.publish(RUN, tip=tip) is None
        assert await bench.hands.publish(RUN, tip=tip) is None, "publishing twice is publishing once"
        assert [member.subtask for member in await bench.hands.landed_since(RUN, bench.base)] == ["one"]
        assert await bench.hands.pinned(RUN, "one", 1) == change
        assert "+TWO = 2" in await bench.hands.diff(bench.base, change.commit)
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
    assert await bench.hands.publish(RUN, tip=await land(bench, first)) is None
    second = await bench.change("two", {"b.txt": "b\n"}, base=bench.base)
    tip = await land(bench, second)
    assert await bench.hands.publish(RUN, tip=tip) is None
    assert git(bench.repository, "rev-parse", "fleet/r1") == tip
    assert git(bench.repository, "rev-list", "--count", "--merges", "fleet/r1") == "0"


async def test_a_resumed_run_keeps_its_tip_and_its_pins(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        tip = await land(bench, await bench.change("one", {"a.txt": "a\n"}))
    async with open_bench() as bench:
        assert await bench.hands.tip(RUN) == tip
        pinned = await bench.hands.pinned(RUN, "one", 1)
        assert pinned is not None
        assert pinned.paths == ("a.txt",)
        assert await bench.hands.pinned(RUN, "one", 2) is None


async def test_a_workshop_leaves_no_process_behind(open_bench: OpenBench) -> None:
    before = forest.children()
    async with open_bench() as bench:
        await land(bench, await bench.change("one", {"a.txt": "a\n"}))
        assert len(forest.children() - before) == 3, (
            "one that reads objects, one that moves refs, one that starts boxes"
        )
    assert forest.children() == before


async def test_a_run_has_one_workshop_at_a_time(bench: Bench) -> None:
    with pytest.raises(FleetError, match="in use by another process"):
        async with open_workshop(bench.target, bench.settings, RUN, bench.base):
            pass


async def test_the_planner_sees_the_repository_at_a_commit(bench: Bench) -> None:
    eyes = bench.hands.at(bench.base)
    assert await eyes.list_files("src/**") == ["src/one.py"]
    assert await eyes.read_file("src/one.py") == "ONE = 1\n"
    assert await eyes.search("ONE = ") == "src/one.py:1: ONE = 1"
    assert await eyes.search("nowhere") == "nothing found"
    assert "Ada: start" in await eyes.history()
    assert await eyes.history("src/none.py") == ""
    assert "    1 README.md" in (await eyes.history()).partition("changed most often")[2]


async def test_cleaning_removes_what_landed_and_keeps_what_did_not(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        tip = await land(bench, await bench.change("one", {"a.txt": "a\n"}))
        assert await bench.hands.publish(RUN, tip=tip) is None
        await bench.change("stray", {"b.txt": "b\n"})
        busy = await clean_run(bench.settings.state_dir, RUN, refs=True)
        assert busy.in_use
    seen = await clean_run(bench.settings.state_dir, RUN, refs=True, dry_run=True)
    assert seen == await clean_run(bench.settings.state_dir, RUN, refs=True)
    assert seen.refs == ("refs/fleet/r1/attempts/one/1",)
    assert "refs/fleet/r1/attempts/stray/1" in seen.kept


async def test_the_box_proves_itself_and_no_sandbox_is_named_as_a_problem(settings: HandSettings) -> None:
    assert await prove(settings) == ()
    bare = HandSettings(state_dir=settings.state_dir, sandbox="none")
    assert "no sandbox" in (await prove(bare))[0]


async def test_without_bubblewrap_the_message_says_what_to_do(
    repository: Path, settings: HandSettings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    target = await inspect(repository)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FleetError, match="apt-get install bubblewrap"):
        async with open_workshop(target, settings, RUN, target.base):
            pass


async def test_a_state_folder_that_can_not_be_used_is_named_with_what_to_do(
    repository: Path, settings: HandSettings, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    blocked = replace(settings, state_dir=tmp_path / "file")
    target = await inspect(repository)
    with pytest.raises(FleetError, match=r"file.* can't be used for the state: Not a directory"):
        async with open_workshop(target, blocked, RUN, target.base):
            pass


async def test_files_are_put_back_as_they_were_on_the_base_whatever_became_of_them(open_bench: OpenBench) -> None:
    async with open_bench() as bench:
        script = "rm README.md; mv src moved; echo new > new; mkdir README.md; echo x > README.md/x"
        async with bench.hands.lease(bench.base) as lease:
            await lease.desk.run(script, timeout_s=20)
            change = await bench.commit(lease)
        assert isinstance(change, Change)
        again = await bench.hands.restored(change.commit, bench.base, ["README.md", "src/one.py"])
        store = bench.hands.store.git
        names = (await store("ls-tree", "-r", "--name-only", again)).decode().split()
        assert names == [".gitignore", "README.md", "moved/one.py", "new", "src/one.py"]
        assert await store("cat-file", "blob", f"{again}:README.md") == b"hello\n"
        async with bench.hands.lease(again) as lease:
            assert (await lease.desk.run("cat README.md", timeout_s=20)).output == "hello\n"
