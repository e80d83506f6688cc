"""Real repositories in a temporary folder, and worktrees opened on them."""

import atexit
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import pytest

from fleet.app.wiring import Wiring
from fleet.config.load import default_config
from fleet.core.base.ids import RunId, Sha, SubtaskId
from fleet.core.facts.facts import Failure, Member
from fleet.ports.worktrees import Change, Lease, Signature
from tests.settings import with_values
from worktrees.base.settings import LeaseKind, WorktreeSettings
from worktrees.leases.commit import commit_changes, find_slot_changes
from worktrees.leases.pool import Slot
from worktrees.leases.run_worktrees import RunWorktrees, open_worktrees
from worktrees.leases.union_view import scan_tree
from worktrees.target.target import Target, inspect

RUN = RunId("r1")


def git(at: Path, *args: str, ok: bool = True) -> str:
    """Git as a user runs it, with a configuration of its own."""
    env = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "Ada",
        "GIT_AUTHOR_EMAIL": "ada@example.org",
        "GIT_COMMITTER_NAME": "Ada",
        "GIT_COMMITTER_EMAIL": "ada@example.org",
    }
    options = ("-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always", "-c", "maintenance.auto=false")
    done = subprocess.run(["git", *options, *args], cwd=at, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0 or not ok, done.stderr
    return done.stdout.strip()


def sha_at(at: Path, revision: str = "HEAD") -> Sha:
    """The id that a revision has there."""
    return Sha(git(at, "rev-parse", revision))


def record_git(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file into which every git that starts from now on writes its arguments."""
    folder.mkdir()
    log, program = folder / "log", folder / "git"
    log.touch()
    program.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec {shutil.which("git")} "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return log


def path_without(program: str, folder: Path) -> str:
    """A PATH with every program of this machine but one."""
    folder.mkdir()
    for place in map(Path, os.environ["PATH"].split(os.pathsep)):
        for found in place.iterdir() if place.is_dir() else ():
            if found.name != program and not os.path.lexists(folder / found.name):
                (folder / found.name).symlink_to(found)
    return str(folder)


def make_repository(at: Path, files: dict[str, str] | None = None) -> Path:
    """A repository with these files in one commit: a copy of the one that was made first with the same files."""
    content = files or {"README.md": "hello\n", "src/one.py": "ONE = 1\n", ".gitignore": "*.log\n"}
    shutil.copytree(_first_with(tuple(content.items())), at)
    git(at, "update-index", "-q", "--refresh")
    return at


@cache
def _first_with(files: tuple[tuple[str, str], ...]) -> Path:
    folder = TemporaryDirectory(prefix="fleet-test-", dir=_memory())
    atexit.register(folder.cleanup)
    at = Path(folder.name) / "repository"
    at.mkdir()
    git(at, "init", "--quiet")
    for name, content in files:
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        (at / name).write_text(content, encoding="utf-8")
    git(at, "add", "-A")
    git(at, "commit", "--quiet", "-m", "start")
    return at


def fingerprint(repository: Path, *, without: str = "fleet") -> dict[str, str]:
    """Everything of a user's repository that we promise to leave alone, hashed."""
    refs = git(repository, "for-each-ref", "--format=%(objectname) %(refname)")
    lines = [line for line in refs.splitlines() if f"refs/heads/{without}/" not in line]
    digests = {"refs": sha256("\n".join(lines).encode()).hexdigest()}
    for path in sorted(repository.rglob("*")):
        name = path.relative_to(repository).as_posix()
        parts = name.split("/")
        ours = f"/heads/{without}" in f"/{name}"
        if path.is_file() and not ours and (parts[0] != ".git" or parts[1] != "objects"):
            digests[name] = sha256(path.read_bytes()).hexdigest()
    assert (repository / ".git" / "HEAD").exists()
    return digests


@dataclass(frozen=True)
class Bench:
    """A repository, and the worktrees opened on it."""

    repository: Path
    target: Target
    settings: WorktreeSettings
    worktrees: RunWorktrees

    @property
    def base(self) -> Sha:
        return self.target.base

    async def commit(self, lease: Lease, subtask: str = "one", *, touches: tuple[str, ...] = ()) -> Change | Failure:
        return await lease.commit(sign(subtask), touches)

    async def commit_slot(self, slot: Slot, base: Sha, *, touches: tuple[str, ...] = ()) -> Change | Failure:
        """The same for a slot of the pool."""
        changes = await find_slot_changes(slot.git, slot.tree, self.settings, max_files=self.settings.box.max_files)
        if isinstance(changes, Failure):
            return changes
        store, settings = self.worktrees.store, self.settings
        return await commit_changes(store, base, changes, signature=sign("slot"), touches=touches, settings=settings)

    async def change(self, subtask: str, files: dict[str, str], *, base: Sha | None = None) -> Member:
        """A candidate that writes these files."""
        async with self.worktrees.lease(base or self.base) as lease:
            for name, content in files.items():
                await lease.workspace.write(name, content.encode())
            change = await lease.commit(sign(subtask), ())
        assert isinstance(change, Change), change
        return Member(subtask=subtask, attempt=1, commit=change.commit)


def sign(subtask: str = "one", *, attempt: int = 1, title: str = "Do the thing", body: str = "") -> Signature:
    return Signature(
        run=RUN,
        subtask=SubtaskId(subtask),
        attempt=attempt,
        title=title,
        body=body,
        worker="coder",
        model="claude-haiku-5-5",
    )


async def added_by_git(slot: Slot, base: Sha, index: Path) -> str:
    """The tree that `git add --all` makes of a slot's files."""
    env = {"GIT_INDEX_FILE": str(index)}
    assert scan_tree(slot.tree, max_files=10_000) == ()  # and opened for git
    await slot.git("read-tree", base, env=env)
    await slot.git("add", "--all", "--", ".", env=env)
    return await slot.git.line("write-tree", env=env)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project")


@pytest.fixture
def lease_kind() -> LeaseKind | Literal["auto"]:
    """How worktrees are leased. A module that tests both kinds has a fixture of this name with parameters."""
    return "auto"


def product_settings(state_dir: Path, **changes: object) -> WorktreeSettings:
    """The default settings of the product."""
    return with_values(Wiring(default_config(), {}).worktrees, {"state_dir": state_dir, **changes})


@pytest.fixture
def settings(tmp_path: Path, lease_kind: LeaseKind | Literal["auto"]) -> WorktreeSettings:
    return product_settings(tmp_path / "state", slots=2, lease=lease_kind)


OpenBench = Callable[..., AbstractAsyncContextManager[Bench]]


@pytest.fixture
def open_bench(repository: Path, settings: WorktreeSettings) -> OpenBench:
    @asynccontextmanager
    async def opened(at: Path | None = None, **changes: object) -> AsyncIterator[Bench]:
        chosen = with_values(settings, changes)
        target = await inspect(at or repository)
        async with open_worktrees(target, chosen, RUN, target.base) as worktrees:
            yield Bench(at or repository, target, chosen, worktrees)

    return opened


@pytest.fixture
async def bench(open_bench: OpenBench) -> AsyncIterator[Bench]:
    async with open_bench() as opened:
        yield opened


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


def python_shown() -> tuple[Path, ...]:
    """What a box must show so that this interpreter runs in it."""
    return (Path(sys.prefix),)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory where that is possible: some file systems take minutes to delete what git writes here."""
    with TemporaryDirectory(prefix="fleet-test-", dir=_memory()) as folder:
        yield Path(folder)


def _memory() -> Path | None:
    memory = Path("/dev/shm")  # noqa: S108 - the one other file system that every Linux has
    return memory if memory.is_dir() else None


@pytest.fixture
def other_drive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder on another file system than the test's own, where hard links to it can't be made."""
    return tmp_path_factory.mktemp("drive")
