"""What differs between two trees, in process and by a git program that stays."""

import os
import signal
from collections.abc import Iterator
from itertools import pairwise

import pytest
from anyio import create_task_group
from hypothesis import given

from fleet.core.base.ids import Sha
from fleet.core.facts.facts import Member
from fleet.ports.worktrees import EffectError
from tests.effort import examples
from tests.worktrees import forest
from tests.worktrees.conftest import Bench
from tests.worktrees.forest import Files, children
from worktrees.git.diff import ENTRIES, PATCH, Diff, DiffProgram, diff_by_program, diff_in_process
from worktrees.git.object_format import FILE
from worktrees.git.repository import Repository

NAMES = (*forest.ODD_NAMES, b"end\n")


@pytest.fixture(params=["sha1", "sha256"])
def store(request: pytest.FixtureRequest) -> Iterator[Repository]:
    with forest.room() as folder:
        opened = Repository(forest.new_repository(folder / "store.git", f"--object-format={request.param}"))
        yield opened
        opened.close()


@examples(80)
@given(old=forest.files(NAMES, submodules=True), new=forest.files(NAMES, submodules=True))
def test_both_ways_list_what_two_lists_of_files_do_not_share(store: Repository, old: Files, new: Files) -> None:
    old_tree, new_tree = (forest.plant(store.objects, files) for files in (old, new))
    diff = diff_in_process(store.objects, old_tree, new_tree)
    assert diff == diff_by_program(store._entries, old_tree, new_tree)
    before, after = ({os.fsdecode(path): mode for path, (mode, _) in files.items()} for files in (old, new))
    changed = {path for path in {*old, *new} if old.get(path) != new.get(path)}
    assert set(diff.paths) == {os.fsdecode(path) for path in changed}
    assert set(diff.removed) == before.keys() - after.keys()
    assert {entry.path: entry.mode for entry in diff.entries if not entry.is_removed} == {
        path: mode for path, mode in after.items() if path in diff.paths
    }


async def test_a_commit_that_is_missing_is_not_a_commit_without_a_difference(store: Repository) -> None:
    objects = store.objects
    first, second = (
        forest.commit(objects, forest.plant(objects, {b"a": (FILE, content)})) for content in (b"1\n", b"2\n")
    )
    blob, missing = objects.put("blob", b"1\n"), "0" * len(first)
    for pair in ((missing, first), (first, missing), (blob, first), (first, blob)):
        with pytest.raises(EffectError):
            await store.diff(*pair)
        with pytest.raises(EffectError):
            diff_by_program(store._entries, *pair)
    assert (await store.diff(first, second)).paths == ("a",), "and it continues to answer"
    old, new = (objects.commit(commit).tree for commit in (first, second))
    assert diff_by_program(store._entries, old, new).paths == ("a",)
    assert await store.diff(first, new) == await store.diff(old, new) == await store.diff(first, second)
    for name in ("HEAD", f"{first}\nend"):
        with pytest.raises(ValueError, match="is not an id or a ref"):
            await store.diff(Sha(name), first)


def test_git_is_started_once_and_again_when_it_was_killed(store: Repository) -> None:
    trees = [forest.plant(store.objects, {b"a": (FILE, b"%d\n" % number)}) for number in range(40)]
    before = forest.children()
    assert store._diff(trees[0], trees[0]) == Diff()
    assert forest.children() == before
    program = DiffProgram(store.git, *ENTRIES)
    for old, new in pairwise(trees):
        assert len(diff_by_program(program, old, new).entries) == 1
    [child] = forest.children() - before
    os.kill(child, signal.SIGKILL)
    assert len(diff_by_program(program, trees[0], trees[1]).entries) == 1
    program.close()
    assert forest.children() == before
    with pytest.raises(EffectError, match="does not respond"):
        diff_by_program(program, trees[0], trees[1])


# ---- patches ---------------------------------------------------------------------------------------------------------


async def patch_by_git(bench: Bench, member: Member, cap: int) -> str:
    return (await bench.worktrees.store.git(*PATCH, bench.base, member.commit, cap=cap)).decode("utf-8", "replace")


async def test_a_patch_is_what_git_makes_of_it_whatever_the_files_hold(bench: Bench) -> None:
    files = {
        "odd 'name": "end of it\n" + f"{'0' * 40} {'1' * 40}\n" * 2 + "no newline",
        "ünï/deep": "\r\n\x0b\x85\u2028",
        "README.md": "",
        "bytes": "\0\x01",
    }
    repository = bench.worktrees.store.repository
    for number, (name, content) in enumerate(files.items()):
        member = await bench.change(f"s{number}", {name: content})
        assert await repository.patch(bench.base, member.commit, cap=10**6) == await patch_by_git(bench, member, 10**6)
    assert await repository.patch(bench.base, bench.base, cap=10**6) == ""


async def test_a_patch_that_is_too_long_is_cut_in_its_middle_and_the_next_is_complete(bench: Bench) -> None:
    repository = bench.worktrees.store.repository
    long = await bench.change("long", {"long.txt": "line\n" * 10_000})
    short = await bench.change("short", {"short.txt": "line\n"})
    assert "bytes left out" in await repository.patch(bench.base, long.commit, cap=1000)
    assert await repository.patch(bench.base, short.commit, cap=1000) == await patch_by_git(bench, short, 1000)


async def test_a_hundred_patches_take_one_program(bench: Bench) -> None:
    member = await bench.change("one", {"one.txt": "1\n"})
    await bench.worktrees.diff(bench.base, bench.base)
    programs = children()
    for _ in range(100):
        assert "+1" in await bench.worktrees.diff(bench.base, member.commit)
    assert children() == programs


async def test_many_who_ask_at_once_each_get_their_own_patch(bench: Bench) -> None:
    members = [await bench.change(f"s{number}", {f"{number}.txt": f"{number}\n" * 60}) for number in range(5)]
    patches = dict[tuple[int, int], str]()

    async def ask(number: int, cap: int) -> None:
        commit = members[number].commit
        patches[number, cap] = await bench.worktrees.store.repository.patch(bench.base, commit, cap=cap)

    async with create_task_group() as group:
        for cap in (100, 10_000):
            for number in range(5):
                group.start_soon(ask, number, cap)
    for number, member in enumerate(members):
        assert patches[number, 10_000] == await patch_by_git(bench, member, 10_000)
        assert "bytes left out" in patches[number, 100]
