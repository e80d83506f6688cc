"""Refs move by compare-and-swap, whichever program moves them."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from anyio import create_task_group

from fleet.core.base.ids import Sha
from fleet.ports.worktrees import EffectError
from tests.worktrees import forest
from tests.worktrees.conftest import git
from worktrees.git.objects import Objects
from worktrees.git.program import Git
from worktrees.git.repository import Refs

TIP = "refs/fleet/r1/tip"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return forest.new_repository(tmp_path / "store.git")


@pytest.fixture
def refs(store: Path) -> Iterator[Refs]:
    opened = Refs(Git(store))
    yield opened
    opened.close()


@pytest.fixture
def packing(store: Path) -> Iterator[Callable[[int], Refs]]:
    """Opens the refs so that so many are loose until all are packed."""
    with ExitStack() as opened:
        yield lambda loose: opened.enter_context(closing(Refs(Git(store), loose=loose)))


@pytest.fixture
def commits(store: Path) -> list[Sha]:
    objects = Objects(store)
    tree = objects.put_tree({})
    return [forest.commit(objects, tree, message=str(number)) for number in range(4)]


async def test_a_ref_moves_only_from_where_we_think_it_is(refs: Refs, store: Path, commits: list[Sha]) -> None:
    await refs.pin(TIP, commits[0])
    assert await refs.swap(TIP, new=commits[1], old=commits[0])
    assert not await refs.swap(TIP, new=commits[2], old=commits[0])
    assert git(store, "rev-parse", TIP) == commits[1]
    assert await refs.swap(TIP, new=commits[2], old=commits[1]), "a refusal does not break the next move"
    await refs.pin(TIP, commits[0])
    assert git(store, "rev-parse", TIP) == commits[0]


async def test_of_many_who_move_a_ref_at_once_exactly_one_does(refs: Refs, commits: list[Sha]) -> None:
    await refs.pin(TIP, commits[0])
    moved: list[Sha] = []

    async def move(to: Sha) -> None:
        if await refs.swap(TIP, new=to, old=commits[0]):
            moved.append(to)

    async with create_task_group() as movers:
        for commit in commits[1:]:
            movers.start_soon(move, commit)
    assert len(moved) == 1


async def test_a_ref_moves_although_the_program_was_killed(refs: Refs, store: Path, commits: list[Sha]) -> None:
    await refs.pin(TIP, commits[0])
    child = refs._program._child
    assert child is not None
    os.kill(child.pid, signal.SIGKILL)
    assert await refs.swap(TIP, new=commits[1], old=commits[0])
    assert git(store, "rev-parse", TIP) == commits[1]


async def test_a_lock_that_others_left_is_an_error_and_is_not_removed(
    refs: Refs, store: Path, commits: list[Sha]
) -> None:
    await refs.pin(TIP, commits[0])
    lock = store / f"{TIP}.lock"
    lock.touch()
    with pytest.raises(EffectError, match="can't move"):
        await refs.swap(TIP, new=commits[1], old=commits[0])
    assert lock.exists()


@pytest.mark.parametrize("ref", ["HEAD", "refs/x y", "refs/x\ndelete refs/fleet/r1/tip", "--stdin"])
async def test_a_name_that_git_could_take_for_more_is_refused(refs: Refs, ref: str, commits: list[Sha]) -> None:
    with pytest.raises(ValueError, match="can't move"):
        await refs.pin(ref, commits[0])


async def test_many_refs_become_one_file_and_move_as_before(
    store: Path, commits: list[Sha], packing: Callable[[int], Refs]
) -> None:
    refs = packing(3)
    await refs.pin(TIP, commits[0])
    names = [f"refs/fleet/r1/attempts/s{number}/1" for number in range(4)]
    for name in names:
        await refs.pin(name, commits[1])
    loose = {path.relative_to(store).as_posix() for path in (store / "refs").rglob("*") if path.is_file()}
    assert loose == set(names[2:])
    assert [git(store, "rev-parse", name) for name in (TIP, *names)] == [commits[0], *[commits[1]] * 4]
    assert await refs.swap(TIP, new=commits[2], old=commits[0])
    assert not await refs.swap(TIP, new=commits[3], old=commits[0])
    await refs.pin(names[0], commits[3])
    assert [git(store, "rev-parse", name) for name in (TIP, names[0])] == [commits[2], commits[3]]


async def test_where_refs_cannot_be_packed_they_are_set_all_the_same(
    store: Path, commits: list[Sha], packing: Callable[[int], Refs]
) -> None:
    refs = packing(1)
    (store / "packed-refs.lock").touch()
    await refs.pin(TIP, commits[0])
    assert (git(store, "rev-parse", TIP), (store / "packed-refs").exists()) == (commits[0], False)
