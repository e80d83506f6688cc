"""The store of a node: a cache of one repository's objects, filled by packs of its manager and by nothing else."""

import re
from pathlib import Path

from anyio import to_thread

from fleet.errors import FleetError
from worktrees.git.program import Git, GitError, text
from worktrees.store.packs import CACHE
from worktrees.store.store import Store, make_ours, unusable

CACHES = "node/stores"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}")


def caches_dir(state_dir: Path) -> Path:
    return state_dir / CACHES


async def open_node_store(state_dir: Path, name: str, object_format: str) -> Store:
    """The cache of this name, made where there is none. Raises `FleetError`."""
    if _NAME.fullmatch(name) is None or ".." in name:
        raise FleetError(f"{name!r} can't be the name of a repository's cache")
    store = Store(caches_dir(state_dir) / name)
    try:
        await to_thread.run_sync(lambda: store.home.mkdir(parents=True, exist_ok=True, mode=0o700))
        async with store.administration():
            if not await to_thread.run_sync(_is_made, store):
                await Git(store.git_dir)("init", "--quiet", "--bare", "--template=", f"--object-format={object_format}")
                await make_ours(store.git)
    except OSError as error:
        raise unusable(store.home, error) from error
    except GitError as error:
        raise FleetError(f"{store.home} can't be made: {error}") from error
    return store


async def drop_pins(store: Store) -> None:
    """Delete the refs of work: what was made here travels as packs, so that they are of no use afterwards."""
    listed = text(await store.git("for-each-ref", "--format=%(refname)", "refs/fleet/"))
    pins = [ref for ref in listed.split() if not ref.startswith(f"{CACHE}/")]
    if pins:
        await store.git.ask("update-ref", "--stdin", data="".join(f"delete {ref}\n" for ref in pins).encode())


def _is_made(store: Store) -> bool:
    """Whether the store was finished: the last thing that is made is this folder, after git's own was removed."""
    head = store.git_dir / "HEAD"
    return (store.git_dir / "refs/heads").is_dir() and head.is_file() and "unused" in head.read_text(encoding="utf-8")
