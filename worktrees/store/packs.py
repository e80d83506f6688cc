"""Packs between stores: what another store lacks of a commit, and objects taken in from a store that we trust."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from os import SEEK_END
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from anyio import open_file, to_thread

from fleet.core.base.ids import Sha
from worktrees.base.errors import effect_error
from worktrees.git.program import CAP, GitError, ask_git, text
from worktrees.store.small_pack import small_pack
from worktrees.store.store import Store, new_prefix

CACHE = "refs/fleet/cache"
NAMED = 64  # commits that a cache says it has: the newest are the nearest to what is asked for next
LOOSE_BYTES = 256 * 1024  # smaller packs become single objects, as git does it with what it fetches
PART = 1024 * 1024


async def thin_pack(store: Store, commit: Sha, have: Sequence[Sha]) -> bytes:
    """What a store that has some commits lacks of another one. Raises `EffectError`."""
    repository = store.repository
    if (small := await repository.run(partial(small_pack, repository.objects, commit, have))) is not None:
        return small
    wanted = "".join((f"{commit}\n", *(f"^{each}\n" for each in have)))
    answer = await store.git.ask("pack-objects", "--quiet", "--revs", "--thin", "--stdout", data=wanted.encode())
    if answer.exit_code != 0 or answer.cut:
        why = f"it has more than {CAP} bytes" if answer.cut else text(answer.stderr)
        raise effect_error(f"the objects of {commit[:12]} can't be packed", why)
    return answer.stdout


async def pack_parts(store: Store, commit: Sha, have: Sequence[Sha]) -> AsyncIterator[bytes]:
    """The same in parts. The history of a whole repository goes through a file, and never through memory at once."""
    if have:
        pack = await thin_pack(store, commit, have)
        for at in range(0, len(pack), PART):
            yield pack[at : at + PART]
        return
    async with _folder(store.home) as folder:
        name = text(await store.git("pack-objects", "--quiet", "--revs", str(folder / "seed"), data=commit.encode()))
        async with await open_file(folder / f"seed-{name.strip()}.pack", "rb") as file:
            while part := await file.read(PART):
                yield part


async def take_pack(store: Store, commit: Sha, pack: IO[bytes]) -> None:
    """Take in the file of a pack of the manager's, and keep its commit. Raises `EffectError`.

    Git reads the file: the history of a whole repository never goes through memory at once.
    """
    size = pack.seek(0, SEEK_END)
    pack.seek(0)
    program = ("unpack-objects", "-q") if size < LOOSE_BYTES else ("index-pack", "--stdin", "--fix-thin")
    answer = await ask_git(*program, env=store.git.place, source=pack.fileno())
    if answer.exit_code != 0:
        raise GitError(program, answer)
    if await store.git.sha(commit) is None:
        raise effect_error(f"the pack does not hold {commit[:12]}")
    await store.repository.refs.pin(f"{CACHE}/{commit}", commit)


async def cached_commits(store: Store) -> tuple[Sha, ...]:
    """The newest commits that this store was given."""
    listed = text(
        await store.git(
            "for-each-ref", "--sort=-creatordate", f"--count={NAMED}", "--format=%(objectname)", f"{CACHE}/"
        )
    )
    return tuple(listed.split())


async def cached_count(store: Store) -> int:
    """How many commits this store was given."""
    return text(await store.git("for-each-ref", "--format=%(objectname)", f"{CACHE}/")).count("\n")


@asynccontextmanager
async def _folder(home: Path) -> AsyncIterator[Path]:
    folder = await to_thread.run_sync(lambda: TemporaryDirectory(prefix=new_prefix("pack-"), dir=home))
    try:
        yield Path(folder.name)
    finally:
        await to_thread.run_sync(folder.cleanup)
