"""Packs between stores: what one lacks arrives from a file, which git reads and this process does not."""

from collections.abc import AsyncIterator
from io import FileIO
from pathlib import Path

import pytest

from fleet.core.base.ids import Sha
from worktrees.git.program import GitError
from worktrees.store.packs import LOOSE_BYTES, cached_commits, open_node_store, pack_parts, take_pack
from worktrees.store.store import Store


class Unread(FileIO):
    """A file that this process must not read."""

    def read(self, size: int | None = -1, /) -> bytes:
        raise AssertionError(f"{size} bytes were read")


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[tuple[Store, Store]]:
    one, two = [await open_node_store(tmp_path, name, "sha1") for name in ("one", "two")]
    yield one, two
    await one.close()
    await two.close()


async def commit_of(store: Store, content: bytes, *parents: str) -> Sha:
    git = store.git
    blob = await git.line("hash-object", "-w", "--stdin", data=content)
    tree = await git.line("mktree", data=f"100644 blob {blob}\tfile\n".encode())
    people = {f"GIT_{role}_{what}": "a@b" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    named = [word for parent in parents for word in ("-p", parent)]
    return Sha(await git.line("commit-tree", tree, *named, "-m", "x", env=people))


async def test_a_seed_and_what_follows_it_are_taken_from_files(stores: tuple[Store, Store], tmp_path: Path) -> None:
    """A large pack stays one, and a small one becomes single objects."""
    ours, theirs = stores
    noise = b"".join(number.to_bytes(4) * 3 for number in range(LOOSE_BYTES))
    seed = await commit_of(ours, noise)
    late = await commit_of(ours, b"late\n", seed)
    for number, (commit, have) in enumerate([(seed, []), (late, [seed])]):
        path = tmp_path / f"{number}.pack"
        path.write_bytes(b"".join([part async for part in pack_parts(ours, commit, have)]))
        assert (path.stat().st_size >= LOOSE_BYTES) == (number == 0)
        with Unread(path) as file:
            await take_pack(theirs, commit, file)
    assert set(await cached_commits(theirs)) == {seed, late}
    assert await theirs.git("cat-file", "blob", f"{seed}:file") == noise
    assert len(list(theirs.git_dir.glob("objects/pack/*.pack"))) == 1


async def test_what_is_no_pack_is_refused(stores: tuple[Store, Store], tmp_path: Path) -> None:
    path = tmp_path / "noise"
    path.write_bytes(b"noise")
    with path.open("rb") as file, pytest.raises(GitError):
        await take_pack(stores[1], Sha("f" * 40), file)
