"""What a journal names is restored where it can be had, pinned again, or known to be gone; nothing else is touched."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.core.ids import attempt_ref, base_ref, tip_ref
from fleet.ports import Named, Recovered
from tests.worktrees.conftest import RUN, Bench, OpenBench, git
from worktrees.mend import drop_damaged
from worktrees.publish import published_ref

LATELY = 0.0


@pytest.fixture
def written() -> Callable[[Bench], list[Path]]:
    def found(bench: Bench) -> list[Path]:
        """The objects of ours, the newest last: the user's are there by hard links."""
        own = [path for path in bench.hands.store.git_dir.glob("objects/??/*") if path.stat().st_nlink == 1]
        return sorted(own, key=lambda path: path.stat().st_mtime_ns)

    return found


Written = Callable[[Bench], list[Path]]


async def landed(bench: Bench, *names: str) -> Named:
    """These land one after the other, each as a file of its own, and are published."""
    tip, attempts, stood = bench.base, dict[tuple[str, int], str](), list[str]()
    for name in names:
        member = await bench.change(name, {f"{name}.txt": name}, base=tip)
        merged = await bench.hands.merge(tip, [member])
        assert await bench.hands.advance(RUN, new=merged.tip, old=tip)
        tip = merged.tip
        attempts[name, 1] = member.commit
        stood.append(tip)
    assert await bench.hands.publish(RUN, tip=tip) is None
    return Named(
        run=RUN, base=bench.base, tip=tip, attempts=attempts, landed=tuple(stood), published=tip, written_since=LATELY
    )


def empty(paths: list[Path]) -> None:
    for path in paths:
        path.chmod(0o644)
        os.truncate(path, 0)


def refs(bench: Bench) -> dict[str, str]:
    listed = git(bench.hands.store.git_dir, "for-each-ref", "--format=%(refname) %(objectname)", f"refs/fleet/{RUN}")
    return dict(line.split(" ") for line in listed.splitlines())


async def mended(bench: Bench, named: Named) -> Recovered:
    """By hands that remember nothing of what was there."""
    await bench.hands.store.close()
    bench.hands.store.__post_init__()
    return await bench.hands.mended(named)


async def test_where_nothing_is_wrong_nothing_changes(bench: Bench) -> None:
    named = await landed(bench, "a", "b")
    before = refs(bench)
    assert await mended(bench, named) == Recovered(named.tip)
    assert refs(bench) == before


async def test_objects_that_a_power_cut_emptied_come_back_from_what_was_published(
    bench: Bench, written: Written
) -> None:
    named = await landed(bench, "a", "b")
    empty(written(bench))
    assert await mended(bench, named) == Recovered(named.tip)
    assert git(bench.hands.store.git_dir, "fsck", "--full", "--strict") == ""


async def test_objects_of_the_right_length_and_the_wrong_content_are_told_from_whole_ones(
    bench: Bench, written: Written
) -> None:
    named = await landed(bench, "a")
    for path in written(bench):
        path.chmod(0o644)
        path.write_bytes(bytes(path.stat().st_size))
    assert await mended(bench, named) == Recovered(named.tip)
    assert git(bench.hands.store.git_dir, "fsck", "--full", "--strict") == ""


async def test_what_can_be_had_nowhere_is_known_to_be_gone_and_the_branch_goes_back(
    bench: Bench, written: Written
) -> None:
    named = await landed(bench, "a")
    before = set(written(bench))
    named = await landed_above(bench, named, "b")
    empty([path for path in written(bench) if path not in before])
    found = await mended(bench, named)
    [first, last] = named.landed
    assert (found.tip, found.gone) == (first, frozenset({last}))
    assert found.below == {first}
    assert refs(bench)[tip_ref(RUN)] == first
    assert git(bench.hands.store.git_dir, "fsck", "--connectivity-only") == ""


async def landed_above(bench: Bench, named: Named, name: str) -> Named:
    """One more lands, and nobody publishes it."""
    member = await bench.change(name, {f"{name}.txt": name}, base=named.tip)
    assert await bench.hands.advance(RUN, new=member.commit, old=named.tip)
    return Named(
        run=RUN,
        base=named.base,
        tip=member.commit,
        attempts={**named.attempts, (name, 1): member.commit},
        landed=(*named.landed, member.commit),
        published=named.published,
        written_since=named.written_since,
    )


async def test_refs_that_somebody_deleted_or_moved_are_what_the_journal_says(bench: Bench) -> None:
    named = await landed(bench, "a", "b")
    before, store = refs(bench), bench.hands.store.git_dir
    for ref in before:
        git(store, "update-ref", "-d", ref)
    git(store, "update-ref", tip_ref(RUN), named.landed[0])
    assert await mended(bench, named) == Recovered(named.tip)
    assert refs(bench) == {ref: commit for ref, commit in before.items() if ref != base_ref(RUN)}


async def test_what_a_torn_journal_knows_nothing_of_is_put_aside_and_kept(bench: Bench) -> None:
    """Its attempts are pinned: they land again without another call."""
    named = await landed(bench, "a")
    later = await landed_above(bench, named, "b")
    assert await mended(bench, named) == Recovered(named.tip)
    assert refs(bench)[tip_ref(RUN)] == named.tip
    assert later.tip in set(refs(bench).values())


async def test_what_landed_before_a_crash_could_be_written_down_stays(bench: Bench) -> None:
    named = await landed(bench, "a")
    later = await landed_above(bench, named, "b")
    waiting = Named(run=RUN, base=named.base, tip=named.tip, underway=frozenset({("b", 1)}), written_since=LATELY)
    assert (await mended(bench, waiting)).tip == named.tip
    assert refs(bench)[tip_ref(RUN)] == later.tip


async def test_a_result_branch_that_is_gone_is_told(bench: Bench) -> None:
    named = await landed(bench, "a")
    git(bench.repository, "update-ref", "-d", f"refs/heads/fleet/{RUN}")
    assert await mended(bench, named) == Recovered(named.tip, shown=False)


async def test_a_store_that_was_deleted_is_filled_again(bench: Bench, open_bench: OpenBench) -> None:
    named = await landed(bench, "a", "b")
    async with open_bench(state_dir=bench.settings.state_dir.with_name("other")) as anew:
        assert await anew.hands.mended(named) == Recovered(named.tip)
        assert refs(anew)[tip_ref(RUN)] == named.tip
        assert refs(anew)[published_ref(RUN)] == named.tip


@pytest.mark.parametrize("amended", [False, True], ids=["a commit of theirs", "ours, amended"])
async def test_a_result_branch_that_a_user_went_on_with_is_not_taken_for_ours(bench: Bench, *, amended: bool) -> None:
    named = await landed(bench, "a")
    message = git(bench.hands.store.git_dir, "log", "-1", "--format=%B", named.tip) if amended else "by hand"
    parent = bench.base if amended else named.tip
    theirs = git(bench.repository, "commit-tree", f"{named.tip}^{{tree}}", "-p", parent, "-m", message)
    git(bench.repository, "update-ref", f"refs/heads/fleet/{RUN}", theirs)
    git(bench.hands.store.git_dir, "update-ref", "-d", published_ref(RUN))
    await mended(bench, named)
    assert published_ref(RUN) not in refs(bench)


async def test_an_engine_that_ended_well_is_believed_about_its_objects_and_not_about_refs(bench: Bench) -> None:
    named = await landed(bench, "a")
    calm = Named(run=RUN, base=named.base, tip=named.tip, attempts=named.attempts, landed=named.landed)
    assert await mended(bench, calm) == Recovered(named.tip)
    git(bench.hands.store.git_dir, "update-ref", "-d", attempt_ref(RUN, "a", 1))
    assert await mended(bench, calm) == Recovered(named.tip)
    assert attempt_ref(RUN, "a", 1) in refs(bench)


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
