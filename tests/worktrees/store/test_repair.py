"""What a journal names is restored where it can be had, pinned again, or reported as lost; nothing else is touched."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.core.base.ids import Sha, SubtaskId, attempt_ref, base_ref, tip_ref
from fleet.ports.worktrees import NamedCommits, RecoveredCommits
from tests.worktrees.conftest import RUN, Bench, OpenBench, git
from worktrees.store.repair import drop_damaged
from worktrees.target.publish import published_ref

LATELY = 0.0


@pytest.fixture
def written() -> Callable[[Bench], list[Path]]:
    def listed(bench: Bench) -> list[Path]:
        """The objects of ours, the newest last: the user's are there by hard links."""
        paths = [path for path in bench.worktrees.store.git_dir.glob("objects/??/*") if path.stat().st_nlink == 1]
        return sorted(paths, key=lambda path: path.stat().st_mtime_ns)

    return listed


Written = Callable[[Bench], list[Path]]


async def landed(bench: Bench, *names: str) -> NamedCommits:
    """These land one after the other, each as a file of its own, and are published."""
    tip, attempts, tips = bench.base, dict[tuple[SubtaskId, int], Sha](), list[Sha]()
    for name in names:
        member = await bench.change(name, {f"{name}.txt": name}, base=tip)
        merged = await bench.worktrees.integrator.merge(tip, [member])
        assert await bench.worktrees.integrator.advance(RUN, new=merged.tip, old=tip)
        tip = merged.tip
        attempts[member.subtask, 1] = member.commit
        tips.append(tip)
    assert await bench.worktrees.publisher.publish(RUN, tip=tip) is None
    return NamedCommits(
        run=RUN, base=bench.base, tip=tip, attempts=attempts, landed=tuple(tips), published=tip, written_since=LATELY
    )


def empty(paths: list[Path]) -> None:
    for path in paths:
        path.chmod(0o644)
        os.truncate(path, 0)


def refs(bench: Bench) -> dict[str, str]:
    listed = git(
        bench.worktrees.store.git_dir, "for-each-ref", "--format=%(refname) %(objectname)", f"refs/fleet/{RUN}"
    )
    return dict(line.split(" ") for line in listed.splitlines())


async def repaired(bench: Bench, named: NamedCommits) -> RecoveredCommits:
    """By a store that has nothing in memory."""
    await bench.worktrees.store.close()
    bench.worktrees.store.__post_init__()
    return await bench.worktrees.recover(named)


async def test_where_nothing_is_wrong_nothing_changes(bench: Bench) -> None:
    named = await landed(bench, "a", "b")
    before = refs(bench)
    assert await repaired(bench, named) == RecoveredCommits(named.tip)
    assert refs(bench) == before


async def test_objects_that_a_power_cut_emptied_come_back_from_what_was_published(
    bench: Bench, written: Written
) -> None:
    named = await landed(bench, "a", "b")
    empty(written(bench))
    assert await repaired(bench, named) == RecoveredCommits(named.tip)
    assert git(bench.worktrees.store.git_dir, "fsck", "--full", "--strict") == ""


async def test_objects_of_the_right_length_and_the_wrong_content_are_recognised(bench: Bench, written: Written) -> None:
    named = await landed(bench, "a")
    for path in written(bench):
        path.chmod(0o644)
        path.write_bytes(bytes(path.stat().st_size))
    assert await repaired(bench, named) == RecoveredCommits(named.tip)
    assert git(bench.worktrees.store.git_dir, "fsck", "--full", "--strict") == ""


async def test_what_can_be_had_nowhere_is_lost_and_the_branch_goes_back(bench: Bench, written: Written) -> None:
    named = await landed(bench, "a")
    before = set(written(bench))
    named = await landed_above(bench, named, "b")
    empty([path for path in written(bench) if path not in before])
    recovered = await repaired(bench, named)
    [first, last] = named.landed
    assert (recovered.tip, recovered.gone) == (first, frozenset({last}))
    assert recovered.below == {first}
    assert refs(bench)[tip_ref(RUN)] == first
    assert git(bench.worktrees.store.git_dir, "fsck", "--connectivity-only") == ""


async def landed_above(bench: Bench, named: NamedCommits, name: str) -> NamedCommits:
    """One more lands and is not published."""
    member = await bench.change(name, {f"{name}.txt": name}, base=named.tip)
    assert await bench.worktrees.integrator.advance(RUN, new=member.commit, old=named.tip)
    return NamedCommits(
        run=RUN,
        base=named.base,
        tip=member.commit,
        attempts={**named.attempts, (member.subtask, 1): member.commit},
        landed=(*named.landed, member.commit),
        published=named.published,
        written_since=named.written_since,
    )


async def test_refs_that_were_deleted_or_moved_are_set_as_the_journal_says(bench: Bench) -> None:
    named = await landed(bench, "a", "b")
    before, store = refs(bench), bench.worktrees.store.git_dir
    for ref in before:
        git(store, "update-ref", "-d", ref)
    git(store, "update-ref", tip_ref(RUN), named.landed[0])
    assert await repaired(bench, named) == RecoveredCommits(named.tip)
    assert refs(bench) == {ref: commit for ref, commit in before.items() if ref != base_ref(RUN)}


async def test_what_a_torn_journal_knows_nothing_of_is_put_aside_and_kept(bench: Bench) -> None:
    """The attempts are pinned: they land again without another call."""
    named = await landed(bench, "a")
    later = await landed_above(bench, named, "b")
    assert await repaired(bench, named) == RecoveredCommits(named.tip)
    assert refs(bench)[tip_ref(RUN)] == named.tip
    assert later.tip in set(refs(bench).values())


async def test_what_landed_before_a_crash_could_be_written_down_stays(bench: Bench) -> None:
    named = await landed(bench, "a")
    later = await landed_above(bench, named, "b")
    waiting = NamedCommits(
        run=RUN, base=named.base, tip=named.tip, underway=frozenset({(SubtaskId("b"), 1)}), written_since=LATELY
    )
    assert (await repaired(bench, waiting)).tip == named.tip
    assert refs(bench)[tip_ref(RUN)] == later.tip


async def test_a_result_branch_that_was_deleted_is_reported(bench: Bench) -> None:
    named = await landed(bench, "a")
    git(bench.repository, "update-ref", "-d", f"refs/heads/fleet/{RUN}")
    assert await repaired(bench, named) == RecoveredCommits(named.tip, shown=False)


async def test_a_store_that_was_deleted_is_filled_again(bench: Bench, open_bench: OpenBench) -> None:
    named = await landed(bench, "a", "b")
    async with open_bench(state_dir=bench.settings.state_dir.with_name("other")) as other:
        assert await other.worktrees.recover(named) == RecoveredCommits(named.tip)
        assert refs(other)[tip_ref(RUN)] == named.tip
        assert refs(other)[published_ref(RUN)] == named.tip


@pytest.mark.parametrize("amended", [False, True], ids=["a commit of theirs", "ours, amended"])
async def test_a_result_branch_that_a_user_continued_is_not_taken_for_ours(bench: Bench, *, amended: bool) -> None:
    named = await landed(bench, "a")
    message = git(bench.worktrees.store.git_dir, "log", "-1", "--format=%B", named.tip) if amended else "by hand"
    parent = bench.base if amended else named.tip
    theirs = git(bench.repository, "commit-tree", f"{named.tip}^{{tree}}", "-p", parent, "-m", message)
    git(bench.repository, "update-ref", f"refs/heads/fleet/{RUN}", theirs)
    git(bench.worktrees.store.git_dir, "update-ref", "-d", published_ref(RUN))
    await repaired(bench, named)
    assert published_ref(RUN) not in refs(bench)


async def test_an_engine_that_ended_well_is_believed_about_its_objects_and_not_about_refs(bench: Bench) -> None:
    named = await landed(bench, "a")
    calm = NamedCommits(run=RUN, base=named.base, tip=named.tip, attempts=named.attempts, landed=named.landed)
    assert await repaired(bench, calm) == RecoveredCommits(named.tip)
    git(bench.worktrees.store.git_dir, "update-ref", "-d", attempt_ref(RUN, SubtaskId("a"), 1))
    assert await repaired(bench, calm) == RecoveredCommits(named.tip)
    assert attempt_ref(RUN, SubtaskId("a"), 1) in refs(bench)


def test_only_what_can_not_be_read_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "ab"
    folder.mkdir()
    (folder / ("c" * 38)).touch()
    (folder / "tmp_obj_1").touch()
    (folder / ("d" * 38)).write_bytes(b"garbage")
    os.utime(folder / ("d" * 38), (100.0, 100.0))
    assert drop_damaged(tmp_path, since=200.0) == 1
    assert sorted(path.name for path in folder.iterdir()) == ["d" * 38, "tmp_obj_1"]
    assert drop_damaged(tmp_path, since=50.0) == 1
