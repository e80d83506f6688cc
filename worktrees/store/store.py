"""The store: one bare repository per target that all worktrees hang off, so that the user's own stays as it is.

A clone by hard links where the file system allows it, with a configuration of its own. The user's refs are not kept:
only `refs/fleet/*` live here. What two processes must not do at once goes through its lock.
"""

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

from anyio import CancelScope, Lock, sleep, to_thread

from fleet.core.ids import RunId, Sha, base_ref, tip_ref
from fleet.points import reached
from fleet.ports import FleetError
from worktrees.difference import Difference, Differences
from worktrees.git import Git, GitFailed, ask_git, serving, text
from worktrees.objects import Objects
from worktrees.patches import Patches
from worktrees.refs import Refs
from worktrees.target import Target

POLL_S = 0.02
NEW = "new-"  # how a store is called while it is made
EXCLUDED = """\
__pycache__/
*.py[co]
*.egg-info/
.coverage
.DS_Store
.hypothesis/
.mypy_cache/
.pytest_cache/
.ruff_cache/
.tox/
.venv/
node_modules/
"""
CONFIG = """\
[core]
\trepositoryformatversion = {version}
\tbare = true
\tfilemode = true
\tlogallrefupdates = false
\tprotectHFS = true
\tprotectNTFS = true
[gc]
\tauto = 0
"""
UPLOAD = serving("upload-pack", "uploadpack.allowAnySHA1InWant=true", "uploadpack.hideRefs=")


def stores_dir(state_dir: Path) -> Path:
    return state_dir / "stores"


def home_of(state_dir: Path, target: Target) -> Path:
    """The folder of a target's store and worktrees: readable, and never shared by two repositories."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", target.root.name).strip("-.")[:40] or "repository"
    digest = hashlib.sha256(os.fsencode(target.root.resolve())).hexdigest()[:12]
    return stores_dir(state_dir) / f"{name}-{digest}"


@dataclass(frozen=True, slots=True)
class Store:
    """The store of one target. `home` also holds the worktree slots."""

    home: Path
    objects: Objects = field(init=False, compare=False, repr=False)
    refs: Refs = field(init=False, compare=False, repr=False)
    patches: Patches = field(init=False, compare=False, repr=False)
    differences: Differences = field(init=False, compare=False, repr=False)
    _turn: Lock = field(default_factory=Lock, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "objects", Objects(self.git_dir))
        object.__setattr__(self, "refs", Refs(self.git))
        object.__setattr__(self, "patches", Patches(self.git, self.objects))
        object.__setattr__(self, "differences", Differences(self.git_dir))

    @property
    def git_dir(self) -> Path:
        return self.home / "fleet.git"

    @property
    def git(self) -> Git:
        return Git(self.git_dir)

    async def close(self) -> None:
        """End the git programs that stayed; those who only look never started one."""
        with CancelScope(shield=True):
            await to_thread.run_sync(self.patches.close)
            await to_thread.run_sync(self.objects.close)
            await to_thread.run_sync(self.refs.close)
            await to_thread.run_sync(self.differences.close)

    async def difference(self, old: Sha, new: Sha) -> Difference:
        """From one commit to another. Raises `Broken`."""
        return await self.objects.run(partial(self.differences.between, old, new))

    @asynccontextmanager
    async def administration(self) -> AsyncIterator[None]:
        """One at a time, over all tasks and processes: adding, removing and pruning worktrees race inside git."""
        async with self._turn:
            while True:
                with try_lock(self.home / "lock") as ours:
                    if ours:
                        yield
                        return
                await sleep(POLL_S)


async def open_store(state_dir: Path, target: Target, *commits: Sha) -> Store:
    """The store of `target`, made or brought up to date so that it holds these commits. Raises `FleetError`."""
    home = home_of(state_dir, target)
    try:
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        store = Store(home)
        async with store.administration():
            if not (store.git_dir / "HEAD").exists():
                await _create(store, target)
            await to_thread.run_sync(_remove_unfinished, home)
            for commit in commits:
                if await store.git.sha(commit) is None:
                    await fetch(store, target, commit)
            store.objects.by_git = await _by_git(store, target)
            (home / "lock").touch()  # used now, says `fleet clean`
    except OSError as error:
        raise unusable(home, error) from error
    except GitFailed as failed:
        raise FleetError(f"{target.root} can't be copied to {home}: {failed.complaint or failed}") from failed
    return store


def unusable(place: Path, error: OSError) -> FleetError:
    why = f"{error.filename or place} can't be used for the state: {error.strerror}"
    return FleetError(f"{why}; make room or rights there, or choose another folder for the state")


async def _by_git(store: Store, target: Target) -> str | None:
    """Why the objects of this repository are left to the git program, where they are."""
    if await store.git.line("rev-parse", "--show-object-format") != "sha1":
        return "its ids are not SHA-1"
    signs = await Git(target.git_dir).ask("config", "--local", "--type=bool", "--get", "commit.gpgSign")
    if text(signs.stdout).strip() == "true":
        return "its commits are to be signed"
    return None


async def begin_run(store: Store, run: RunId, base: Sha) -> None:
    """The refs of a run that begins; what an earlier process set stays."""
    for ref in (base_ref(run), tip_ref(run)):
        if await store.git.sha(ref) is None:
            await store.git("update-ref", ref, base)
            reached("a run has one of its first refs")


async def _create(store: Store, target: Target) -> None:
    new = Path(mkdtemp(prefix=NEW, dir=store.home))
    try:
        await _clone(target, new / "fleet.git")
        await _make_ours(Git(new / "fleet.git"))
        reached("a store is made, and not in its place")
        (new / "fleet.git").rename(store.git_dir)
        reached("a store is in its place")
    finally:
        await to_thread.run_sync(_remove, new)


async def _clone(target: Target, to: Path) -> None:
    """By hard links where possible; git copies where they are not, and asks upload-pack where files won't do."""
    clone = ("clone", "--bare", "--quiet", "--template=", f"--upload-pack={UPLOAD}")
    answer = await ask_git(*clone, "--", str(target.git_dir), str(to))
    if answer.exit_code != 0:
        await to_thread.run_sync(_remove, to)
        answer = await ask_git(*clone, "--no-local", "--", str(target.git_dir), str(to))
    if answer.exit_code != 0:
        raise GitFailed(("clone",), answer.exit_code, text(answer.stderr))


async def _make_ours(git: Git) -> None:
    sha256 = await git.line("rev-parse", "--show-object-format") == "sha256"
    config = CONFIG.format(version=1 if sha256 else 0)
    if sha256:
        config += "[extensions]\n\tobjectFormat = sha256\n"
    (git.git_dir / "config").write_text(config, encoding="utf-8")
    (git.git_dir / "info").mkdir(exist_ok=True)
    (git.git_dir / "info" / "exclude").write_text(EXCLUDED, encoding="utf-8")
    (git.git_dir / "HEAD").write_text("ref: refs/heads/unused\n", encoding="utf-8")
    (git.git_dir / "packed-refs").unlink(missing_ok=True)
    await to_thread.run_sync(_remove, git.git_dir / "refs")
    (git.git_dir / "refs" / "heads").mkdir(parents=True)


async def fetch(store: Store, target: Target, commit: Sha) -> None:
    """Bring a commit of the user's repository, whatever names it there. Raises `GitFailed`."""
    order = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--update-shallow", f"--upload-pack={UPLOAD}")
    await store.git(*order, "--", str(target.git_dir), commit)


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Whether the lock is ours. It goes with the block, and with the process however that ends."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(fd)


def _remove_unfinished(home: Path) -> None:
    """What was left by one who was killed while it made the store: under the store's lock nobody else can be at it."""
    for left in home.glob(f"{NEW}*"):
        _remove(left)


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
