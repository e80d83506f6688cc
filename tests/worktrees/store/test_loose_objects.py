"""Loose objects become packs while a run works: nothing is lost, whatever happens meanwhile, and no reader notices."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from anyio import create_task_group, fail_after, to_thread
from anyio.lowlevel import checkpoint

from fleet.core.base.ids import Sha, tip_ref
from fleet.runs.crash_points import listening
from tests.worktrees.conftest import RUN, Bench, git
from worktrees.git.objects import Objects
from worktrees.store.packs import keep_packed, pack_loose_objects
from worktrees.store.store import Store, try_lock


class KilledError(Exception):
    """In place of the end of the process."""


@contextmanager
def killed_at(point: str) -> Iterator[None]:
    def listener(name: str) -> None:
        if name == point:
            raise KilledError

    with listening(listener), pytest.raises(KilledError):
        yield


@pytest.fixture
def store(bench: Bench) -> Store:
    return bench.worktrees.store


def loose(store: Store) -> set[Sha]:
    """The objects that are files of the store's own."""
    found = set[Sha]()
    for path in store.git_dir.glob("objects/??/*"):
        with suppress(FileNotFoundError):
            if path.stat().st_nlink == 1:
                found.add(Sha(path.parent.name + path.name))
    return found


def packs(store: Store) -> set[Path]:
    return set(store.git_dir.glob("objects/pack/*.pack"))


async def readable(store: Store, ids: set[Sha]) -> bool:
    """By a program that opens the repository now."""
    asked = "".join(f"{id_}\n" for id_ in ids).encode()
    return b"missing" not in await store.git("cat-file", "--batch-check", data=asked)


async def work(bench: Bench) -> set[Sha]:
    """Some work, landed; and an object that nothing refers to. Returns all objects of it."""
    tip = bench.base
    for name in ("a", "b"):
        merged = await bench.worktrees.integrator.merge(
            tip, [await bench.change(name, {f"{name}.txt": name}, base=tip)]
        )
        assert await bench.worktrees.integrator.advance(RUN, new=merged.tip, old=tip)
        tip = merged.tip
    store = bench.worktrees.store
    unreachable = await store.repository.run(partial(store.repository.objects.put, "blob", b"evidence"))
    made = loose(store)
    assert unreachable in made
    return made


async def test_objects_become_one_pack_and_all_of_them_stay_readable(bench: Bench, store: Store) -> None:
    made, before = await work(bench), packs(store)
    refs = await store.git.refs("refs/")
    objects = Objects(store.git_dir)
    objects.missing(sorted(made))  # its program has the repository open from here on
    try:
        assert await pack_loose_objects(store) == len(made)
        assert loose(store) == set()
        assert len(packs(store) - before) == 1
        assert await to_thread.run_sync(objects.missing, sorted(made)) == []
    finally:
        objects.close()
    assert await readable(store, made)
    assert await store.git.refs("refs/") == refs
    assert "missing" not in git(store.git_dir, "fsck", "--full")


async def test_work_continues_above_packed_objects(bench: Bench, store: Store) -> None:
    await work(bench)
    await pack_loose_objects(store)
    tip = await store.git.sha(tip_ref(RUN))
    assert tip is not None
    async with bench.worktrees.lease(tip) as lease:
        assert (await lease.workspace.read("b.txt")) == b"b"
        ran = await lease.workspace.run("git cat-file -p HEAD:a.txt && git status --porcelain", timeout_s=20)
        assert (ran.exit_code, ran.output) == (0, "a")
    merged = await bench.worktrees.integrator.merge(tip, [await bench.change("c", {"c.txt": "c"}, base=tip)])
    assert await bench.worktrees.integrator.advance(RUN, new=merged.tip, old=tip)
    assert await bench.worktrees.publisher.publish(RUN, tip=merged.tip) is None
    assert git(bench.repository, "show", f"{merged.tip}:a.txt") == "a"


async def test_objects_that_the_users_repository_holds_as_well_stay_files(bench: Bench, store: Store) -> None:
    shared = {path for path in store.git_dir.glob("objects/??/*") if path.stat().st_nlink > 1}
    await work(bench)
    await pack_loose_objects(store)
    assert shared
    assert all(path.exists() for path in shared)


@pytest.mark.parametrize(
    "point",
    ["objects are about to be packed", "objects are in a pack, and loose as well", "objects are in a pack only"],
)
async def test_a_kill_loses_nothing_and_the_next_one_packs_them(bench: Bench, store: Store, point: str) -> None:
    made = await work(bench)
    with killed_at(point):
        await pack_loose_objects(store)
    assert await readable(store, made)
    await pack_loose_objects(store)
    assert loose(store) == set()
    assert await readable(store, made)


async def test_where_an_object_is_damaged_none_is_removed(bench: Bench, store: Store) -> None:
    made, before = await work(bench), packs(store)
    damaged = min(made)
    path = store.git_dir / "objects" / damaged[:2] / damaged[2:]
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-4])
    assert await pack_loose_objects(store) == 0
    assert (loose(store), packs(store)) == (made, before)


async def test_where_git_cannot_run_nothing_is_removed(
    bench: Bench, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await work(bench)
    monkeypatch.setenv("PATH", "/nonexistent")
    assert await pack_loose_objects(store) == 0
    assert loose(store) == made


async def test_one_process_packs_a_store(bench: Bench, store: Store) -> None:
    made = await work(bench)
    with try_lock(store.home / "packing.lock") as ours:
        assert ours
        assert await pack_loose_objects(store) == 0
    assert loose(store) == made


async def test_what_a_killed_git_left_is_removed_once_no_git_can_be_writing_it(store: Store) -> None:
    old, new = (store.git_dir / "objects/pack" / f"tmp_pack_{name}" for name in ("old", "new"))
    for path in (old, new):
        path.write_bytes(b"half of a pack")
    os.utime(old, (time.time() - 7_200,) * 2)
    await pack_loose_objects(store)
    assert (old.exists(), new.exists()) == (False, True)


async def test_writers_and_readers_work_while_objects_are_packed(store: Store) -> None:
    objects, written = store.repository.objects, list[Sha]()

    def write_and_read(number: int) -> None:
        id_ = objects.put("blob", b"file %d" % number)
        assert objects.put("blob", b"file %d" % number) == id_
        written.append(id_)
        for old in written[-3:]:
            assert objects.find(old) is not None

    async def write() -> None:
        for number in range(300):
            await store.repository.run(partial(write_and_read, number))

    async with create_task_group() as group:
        group.start_soon(write)
        while len(written) < 300:
            await pack_loose_objects(store)
            await checkpoint()
    assert await readable(store, set(written))


async def test_a_run_packs_when_there_are_many(bench: Bench, store: Store) -> None:
    await work(bench)
    many = {
        await store.repository.run(partial(store.repository.objects.put, "blob", b"%d" % number))
        for number in range(600)
    }
    with fail_after(60):
        async with create_task_group() as group:
            group.start_soon(partial(keep_packed, store, limit=100, look_s=0))
            while many & loose(store):
                await checkpoint()
            group.cancel_scope.cancel()
    assert await readable(store, many)


async def test_a_store_that_cannot_be_packed_disturbs_nobody(bench: Bench, store: Store) -> None:
    made = await work(bench)
    (store.home / "packing.lock").mkdir()  # opening it as a file fails
    tried = list[str]()
    with fail_after(60), listening(tried.append):
        async with create_task_group() as group:
            group.start_soon(partial(keep_packed, store, limit=-1, look_s=0))
            for _ in range(100):
                await checkpoint()
            (store.home / "packing.lock").rmdir()
            while "objects are in a pack only" not in tried:
                await checkpoint()
            group.cancel_scope.cancel()
    assert await readable(store, made)
