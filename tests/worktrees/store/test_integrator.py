"""Landing without a worktree, and the user's branches."""

from pathlib import Path

import pytest

from fleet.core.base.ids import Sha, aside_ref, tip_ref
from fleet.core.facts.facts import Member
from fleet.ports.worktrees import Change
from tests.worktrees.conftest import RUN, Bench, git, record_git, sign
from worktrees.git.merge import EVIDENCE


async def test_a_conflict_is_left_out_with_its_paths_and_the_others_go_on(bench: Bench) -> None:
    first = await bench.change("first", {"src/one.py": "ONE = 'first'\n"})
    clash = await bench.change("clash", {"src/one.py": "ONE = 'clash'\n", "other.txt": "x\n"})
    third = await bench.change("third", {"three.txt": "3\n"})
    merged = await bench.worktrees.integrator.merge(bench.base, [first, clash, third])
    assert [member.subtask for member in merged.landed] == ["first", "third"]
    [(member, failure)] = merged.conflicts
    assert (member, failure.kind) == (clash, "conflict")
    assert failure.evidence.startswith("src/one.py\n\nCONFLICT (content): Merge conflict in src/one.py")
    count = await bench.worktrees.store.git("rev-list", "--count", "--no-merges", f"{bench.base}..{merged.tip}")
    assert count == b"2\n", "linear, one commit a subtask"


async def test_the_evidence_of_a_conflict_holds_both_sides_and_who_landed(bench: Bench) -> None:
    other = await bench.change("other", {"other.txt": "other\n"})
    first = await bench.change("first", {"src/one.py": "ONE = 'first'\n"})
    clash = await bench.change("clash", {"src/one.py": "ONE = 'clash'\n"})
    merged = await bench.worktrees.integrator.merge(bench.base, [other, first, clash])
    [(_, failure)] = merged.conflicts
    landed, _, hunk = failure.evidence.partition("landed since")[2].partition("\n\n")
    assert landed.splitlines()[1:] == [
        "- Do the thing",
        "  Fleet-Run: r1",
        "  Fleet-Task: first",
        "  Fleet-Attempt: 1",
        "  Fleet-Worker: coder",
    ]
    assert hunk.splitlines() == [
        "src/one.py:",
        "<<<<<<< landed",
        "ONE = 'first'",
        "=======",
        "ONE = 'clash'",
        ">>>>>>> this attempt",
    ]


async def test_the_evidence_of_a_conflict_has_a_limit_and_safe_names(bench: Bench) -> None:
    names = [f"file-{number}" for number in range(40)]
    sides = [
        await bench.change(side, {name: "".join(f"{side} {line}\n" for line in range(300)) for name in names})
        for side in ("first", "clash")
    ]
    [(_, failure)] = (await bench.worktrees.integrator.merge(bench.base, sides)).conflicts
    assert len(failure.evidence) <= EVIDENCE
    assert "... and 20 more" in failure.evidence
    assert "... 261 more lines" in failure.evidence


async def test_a_merge_that_git_gives_up_on_costs_only_the_candidate_its_place(bench: Bench) -> None:
    text = "".join(f"line {number} of a text that is long enough\n" for number in range(12))
    base = await bench.change("base", {"d/b/c": text})

    async def made(subtask: str, script: str) -> Member:
        async with bench.worktrees.lease(base.commit) as lease:
            assert (await lease.workspace.run(script, timeout_s=20)).exit_code == 0
            change = await lease.commit(sign(subtask), ())
        assert isinstance(change, Change), change
        return Member(subtask=subtask, attempt=1, commit=change.commit)

    first = await made("first", "mv d/b/c x && rmdir d/b && sed 3d x > d/b && rm x && chmod +x d/b")
    clash = await made("clash", "mkdir -p a/a/c/b && mv d/b/c a/a/c/b/c")
    third = await made("third", "echo 3 > three")
    merged = await bench.worktrees.integrator.merge(base.commit, [first, clash, third])
    assert [member.subtask for member in merged.landed] == ["first", "third"]
    assert [(member.subtask, failure.kind) for member, failure in merged.conflicts] == [("clash", "conflict")]


async def test_an_edit_follows_a_file_that_landed_work_renamed(bench: Bench) -> None:
    text = "".join(f"line {number} of a text that is long enough\n" for number in range(12))
    base = await bench.change("base", {"old.txt": text})
    async with bench.worktrees.lease(base.commit) as lease:
        await lease.workspace.run("mv old.txt new.txt", timeout_s=20)
        renamed = await lease.commit(sign("rename"), ())
    assert isinstance(renamed, Change)
    edit = await bench.change("edit", {"old.txt": text.replace("line 3", "LINE 3")}, base=base.commit)
    merged = await bench.worktrees.integrator.merge(renamed.commit, [edit])
    assert merged.conflicts == ()
    shown = await bench.worktrees.store.git("diff-tree", "-r", "--name-only", renamed.commit, merged.tip)
    assert shown == b"new.txt\n"


async def test_a_candidate_that_would_change_more_than_its_own_change_is_refused(bench: Bench) -> None:
    stray = await bench.change("stray", {"stray.txt": "never landed\n"})
    second = await bench.change("second", {"second.txt": "x\n"}, base=stray.commit)
    landed = await bench.change("landed", {"landed.txt": "x\n"})
    plain = await bench.worktrees.store.git("merge-tree", "--write-tree", landed.commit, second.commit)
    brought = await bench.worktrees.store.git("diff-tree", "-r", "--name-only", landed.commit, plain.decode().strip())
    assert brought == b"second.txt\nstray.txt\n", "without the check it brings what never landed"
    merged = await bench.worktrees.integrator.merge(landed.commit, [second])
    [(_, failure)] = merged.conflicts
    assert (failure.kind, failure.evidence) == ("conflict", "stray.txt")
    assert merged.tip == landed.commit


async def test_a_change_that_was_taken_back_does_not_land_twice(bench: Bench) -> None:
    first = await bench.change("first", {"a.txt": "a\n"})
    async with bench.worktrees.lease(first.commit) as lease:
        await lease.workspace.run("rm a.txt; echo b > b.txt", timeout_s=20)
        undone = await lease.commit(sign("undone"), ())
    assert isinstance(undone, Change)
    merged = await bench.worktrees.integrator.merge(undone.commit, [first])
    assert [failure.kind for _, failure in merged.conflicts] == ["empty"]


async def test_disjoint_candidates_land_linearly_on_the_trees_that_git_would_make(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = record_git(tmp_path / "bin", monkeypatch)
    members = [
        await bench.change(f"task-{number}", {f"src/part-{number}/x.py": f"{number}\n", f"top-{number}": "x\n"})
        for number in range(6)
    ]
    merged = await bench.worktrees.integrator.merge(bench.base, members)
    back = await bench.worktrees.integrator.merge(bench.base, members[::-1])
    assert "merge-tree" not in asked.read_text(encoding="utf-8")
    store, trees, tip = bench.worktrees.store, list[str](), bench.base
    for member, landed in zip(members, merged.landed, strict=True):
        trees.append((await store.git("merge-tree", "--write-tree", tip, member.commit)).decode().strip())
        tip = landed.commit
        assert await store.git.line("rev-parse", f"{tip}^{{tree}}") == trees[-1]
    assert await store.git.line("rev-parse", f"{back.tip}^{{tree}}") == trees[-1], "whatever the order"
    assert await store.git.line("rev-list", "--count", f"{bench.base}..{tip}") == "6"
    assert await store.git("fsck", "--strict", "--no-dangling", "--no-progress") == b""


async def test_a_landed_commit_keeps_author_message_and_trailers(bench: Bench) -> None:
    first = await bench.change("first", {"a.txt": "a\n"})
    second = await bench.change("second", {"b.txt": "b\n"})
    merged = await bench.worktrees.integrator.merge(bench.base, [first, second])
    shown = [
        await bench.worktrees.store.git("log", "-1", "--format=%an%n%ae%n%ad%n%B", commit)
        for commit in (second.commit, merged.tip)
    ]
    assert shown[0] == shown[1]
    assert second.commit != merged.tip


async def test_a_result_branch_that_someone_moved_is_left_alone(bench: Bench) -> None:
    first = await bench.change("first", {"a.txt": "a\n"})
    second = await bench.change("second", {"b.txt": "b\n"}, base=first.commit)
    assert await bench.worktrees.publisher.publish(RUN, tip=first.commit) is None
    git(bench.repository, "update-ref", "refs/heads/fleet/r1", bench.base)
    reason = await bench.worktrees.publisher.publish(RUN, tip=second.commit)
    assert reason is not None
    assert f"fleet left it at {first.commit[:7]}" in reason
    assert git(bench.repository, "rev-parse", "fleet/r1") == bench.base


async def test_a_result_branch_that_is_checked_out_is_left_alone(bench: Bench) -> None:
    first = await bench.change("first", {"a.txt": "a\n"})
    second = await bench.change("second", {"b.txt": "b\n"}, base=first.commit)
    assert await bench.worktrees.publisher.publish(RUN, tip=first.commit) is None
    git(bench.repository, "config", "receive.denyCurrentBranch", "updateInstead")
    git(bench.repository, "checkout", "--quiet", "fleet/r1")
    reason = await bench.worktrees.publisher.publish(RUN, tip=second.commit)
    assert reason is not None
    assert "is checked out" in reason
    git(bench.repository, "checkout", "--quiet", "main")
    assert await bench.worktrees.publisher.publish(RUN, tip=second.commit) is None


async def test_what_was_pushed_just_before_a_crash_is_ours(bench: Bench) -> None:
    first = await bench.change("first", {"a.txt": "a\n"})
    second = await bench.change("second", {"b.txt": "b\n"}, base=first.commit)
    assert await bench.worktrees.publisher.publish(RUN, tip=first.commit) is None
    await bench.worktrees.store.git("update-ref", "-d", "refs/fleet/r1/published")
    assert await bench.worktrees.publisher.publish(RUN, tip=second.commit) is None


async def test_a_name_that_git_can_not_have_is_a_reason(bench: Bench) -> None:
    git(bench.repository, "branch", "fleet")
    member = await bench.change("first", {"a.txt": "a\n"})
    reason = await bench.worktrees.publisher.publish(RUN, tip=member.commit)
    assert reason is not None
    assert "fleet/r1 can't be moved" in reason


async def test_a_lock_that_a_killed_git_left_is_named_where_it_is(bench: Bench) -> None:
    lock = bench.repository / ".git" / "refs" / "heads" / "fleet" / "r1.lock"
    lock.parent.mkdir()
    lock.touch()
    member = await bench.change("first", {"a.txt": "a\n"})
    reason = await bench.worktrees.publisher.publish(RUN, tip=member.commit)
    assert reason == (f"fleet/r1 is locked by a git process, or by a killed one. If none is running, remove {lock}")
    lock.unlink()
    assert await bench.worktrees.publisher.publish(RUN, tip=member.commit) is None


# ---- what a hand does to the branch ----------------------------------------------------------------------------------


async def test_what_a_hand_put_on_the_integration_branch_is_kept_beside_it(bench: Bench) -> None:
    member = await bench.change("one", {"one.txt": "1"})
    store = bench.worktrees.store.git_dir
    theirs = Sha(git(store, "commit-tree", f"{bench.base}^{{tree}}", "-p", bench.base, "-m", "by hand"))
    git(store, "update-ref", tip_ref(RUN), theirs)
    assert not await bench.worktrees.integrator.advance(RUN, new=member.commit, old=bench.base)
    assert await bench.worktrees.integrator.landed_since(RUN, bench.base) == ()
    assert git(store, "rev-parse", aside_ref(RUN, theirs)) == theirs
    assert await bench.worktrees.integrator.advance(RUN, new=member.commit, old=bench.base)


async def test_a_commit_by_hand_above_what_landed_is_no_landing(bench: Bench) -> None:
    """It was not tested: what is below it is merged and tested again."""
    member = await bench.change("one", {"one.txt": "1"})
    store = bench.worktrees.store.git_dir
    theirs = Sha(git(store, "commit-tree", f"{member.commit}^{{tree}}", "-p", member.commit, "-m", "by hand"))
    git(store, "update-ref", tip_ref(RUN), theirs)
    assert await bench.worktrees.integrator.landed_since(RUN, bench.base) == ()
    assert await bench.worktrees.integrator.tip(RUN) == bench.base


async def test_an_integration_branch_that_was_deleted_meanwhile_is_set_again(bench: Bench) -> None:
    git(bench.worktrees.store.git_dir, "update-ref", "-d", tip_ref(RUN))
    assert await bench.worktrees.integrator.landed_since(RUN, bench.base) == ()
    assert await bench.worktrees.integrator.tip(RUN) == bench.base
