"""The store: one bare repository per target for all worktrees, so that the user's repository stays unchanged.

It is a copy by hard links if the file system allows it, with a separate configuration. The user's refs are not copied:
it has only `refs/fleet/*`. A lock guards operations that two processes must not run at the same time.
"""

import fcntl
import hashlib
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from errno import ENOSPC
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

from anyio import CancelScope, Lock, sleep, to_thread

from fleet.core.base.ids import RunId, Sha, base_ref, result_branch, run_refs, taken_refs, tip_ref
from fleet.core.base.paths import matches, path_problem
from fleet.errors import FleetError
from fleet.ports.agents import WorkspaceError
from fleet.ports.worktrees import Change
from fleet.runs.crash_points import reached
from worktrees.base.fs import as_text
from worktrees.git import reader
from worktrees.git.object_format import ID
from worktrees.git.program import Git, GitError, fields, remote_command, text
from worktrees.git.repository import Repository
from worktrees.target.checkout import find_checkout
from worktrees.target.target import Target, inspect

POLL_S = 0.02
NEW = "new-"  # prefix of a folder that is being filled, followed by the process id
REPOSITORY = "repository"  # the file in a store's folder with the path of the repository
EXCLUDED = (
    "__pycache__/ *.py[co] *.egg-info/ .coverage .DS_Store .hypothesis/ .mypy_cache/ .pytest_cache/ .ruff_cache/ .tox/ "
    ".venv/ node_modules/"
)
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
UPLOAD = remote_command("upload-pack", "uploadpack.allowAnySHA1InWant=true", "uploadpack.hideRefs=")


def stores_dir(state_dir: Path) -> Path:
    return state_dir / "stores"


def home_of(state_dir: Path, target: Target) -> Path:
    """Return the folder of a target's store and worktrees: readable, and never shared by two repositories."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", target.root.name).strip("-.")[:40] or "repository"
    digest = hashlib.sha256(os.fsencode(target.root.resolve())).hexdigest()[:12]
    return stores_dir(state_dir) / f"{name}-{digest}"


def slots_dir(store: "Store", name: str) -> Path:
    """Return the folder of worktrees of both kinds. For a run it has the name of the run."""
    return store.home / "slots" / name


def lost_repository(home: Path) -> Path | None:
    """Return the repository of the store in this folder, if it no longer exists. An inaccessible one may exist."""
    try:
        repository = Path(os.fsdecode((home / REPOSITORY).read_bytes()))
    except OSError:
        return None
    try:
        repository.lstat()
    except FileNotFoundError:
        return repository
    except OSError:
        return None
    return None


@dataclass(frozen=True, slots=True)
class Store:
    """The store of one target. `home` also holds the worktree slots."""

    home: Path
    repository: Repository = field(init=False, compare=False, repr=False)
    _turn: Lock = field(default_factory=Lock, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "repository", Repository(self.git_dir))

    @property
    def git_dir(self) -> Path:
        return self.home / "fleet.git"

    @property
    def git(self) -> Git:
        return Git(self.git_dir)

    async def close(self) -> None:
        """End the long-running git programs."""
        with CancelScope(shield=True):
            await to_thread.run_sync(self.repository.close)

    @asynccontextmanager
    async def administration(self) -> AsyncIterator[None]:
        """Lock across all tasks and processes: adding, removing and pruning worktrees race inside git."""
        async with self._turn:
            while True:
                with try_lock(self.home / "lock") as is_ours:
                    if is_ours:
                        yield
                        return
                await sleep(POLL_S)


async def open_store(state_dir: Path, target: Target, *commits: Sha) -> Store:
    """Create or update the store of `target`, so that it has these commits. Raises `FleetError`."""
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
            (home / REPOSITORY).write_bytes(os.fsencode(target.root.resolve()))
            (home / "lock").touch()  # `fleet clean` reads the time of the last use from it
    except OSError as error:
        raise unusable(home, error) from error
    except GitError as failed:
        why = failed.failure.evidence.strip() or str(failed)
        advice = "free some space, or set state.dir to another folder" if os.strerror(ENOSPC) in why else ""
        raise FleetError(f"can't copy {target.root} to {home}: {why}", hint=advice) from failed
    return store


def unusable(place: Path, error: OSError) -> FleetError:
    return FleetError(
        f"can't use {error.filename or place} for the state: {error.strerror}",
        hint="free some space, correct the permissions, or set state.dir to another folder",
    )


async def pinned_change(store: Store, ref: str) -> Change | None:
    """Return the commit that a ref pins, with its paths."""
    commit = await store.repository.commit_at(ref)
    if commit is None:
        return None
    parent = (await store.repository.commit(commit)).parents[0]
    paths = (await store.repository.diff(parent, commit)).paths
    return Change(commit=commit, paths=tuple(map(as_text, paths)))


async def begin_run(store: Store, run: RunId, base: Sha) -> None:
    """Set the refs of a new run. Existing ones stay unchanged."""
    for ref in (base_ref(run), tip_ref(run)):
        if await store.git.sha(ref) is None:
            await store.git("update-ref", ref, base)
            reached("a run has one of its first refs")


async def _create(store: Store, target: Target) -> None:
    new = Path(mkdtemp(prefix=new_prefix(), dir=store.home))
    try:
        await _fill(target, new / "fleet.git")
        await make_ours(Git(new / "fleet.git"))
        reached("a store is made, and not in its place")
        (new / "fleet.git").rename(store.git_dir)
        reached("a store is in its place")
    finally:
        await to_thread.run_sync(_remove, new)


async def _fill(target: Target, git_dir: Path) -> None:
    """Create a bare repository with the target's objects, or with none if they can't be linked."""
    object_format = await target.git.line("rev-parse", "--show-object-format")
    await Git(git_dir)("init", "--quiet", "--bare", "--template=", f"--object-format={object_format}")
    await to_thread.run_sync(link_objects, target.git_dir, git_dir)


async def make_ours(git: Git) -> None:
    is_sha256 = await git.line("rev-parse", "--show-object-format") == "sha256"
    config = CONFIG.format(version=1 if is_sha256 else 0)
    if is_sha256:
        config += "[extensions]\n\tobjectFormat = sha256\n"
    (git.git_dir / "config").write_text(config, encoding="utf-8")
    (git.git_dir / "info").mkdir(exist_ok=True)
    (git.git_dir / "info" / "exclude").write_text("\n".join((*EXCLUDED.split(), "")), encoding="utf-8")
    (git.git_dir / "HEAD").write_text("ref: refs/heads/unused\n", encoding="utf-8")
    (git.git_dir / "packed-refs").unlink(missing_ok=True)
    await to_thread.run_sync(_remove, git.git_dir / "refs")
    (git.git_dir / "refs" / "heads").mkdir(parents=True)


async def fetch(store: Store, target: Target, commit: Sha) -> None:
    """Fetch a commit of the user's repository, with or without a ref there. Raises `GitError`."""
    command = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--update-shallow", f"--upload-pack={UPLOAD}")
    await store.git(*command, "--", str(target.stand_in.path), commit)


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Try to take a lock. It ends with the block, or when the process ends in any way."""
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


def new_prefix(what: str = "") -> str:
    """Return the prefix for a temporary folder in a store's home."""
    return f"{NEW}{os.getpid()}-{what}"


def _remove_unfinished(home: Path) -> None:
    """Remove unfinished work of killed processes. Other runs may be importing packs in the meantime."""
    for folder in home.glob(f"{NEW}*"):
        maker = folder.name.removeprefix(NEW).partition("-")[0]
        if not (maker.isdecimal() and Path(f"/proc/{maker}").exists()):
            _remove(folder)


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)


# ---- links -----------------------------------------------------------------------------------------------------------
# Fills a new store with the objects of the user's repository by hard links: a second, whatever its size.
#
# Only files with the name of an object or a pack are linked, and only regular files, because a link in that folder
# could lead anywhere. If that is impossible (another drive, files of another owner, a pack that was just replaced), no
# object is linked, and the commits that a run needs are fetched.


LOOSE = re.compile(r"[0-9a-f]{38}|[0-9a-f]{62}")
FOLDER = re.compile(r"[0-9a-f]{2}")
PACKED = re.compile(r"pack-[0-9a-f]{40,64}\.(?:bitmap|idx|keep|mtimes|pack|promisor|rev)")
ALTERNATES = Path("objects", "info", "alternates")


def link_objects(theirs: Path, ours: Path) -> None:
    """Link all objects from one git folder to another or none, and copy its shallow boundary and alternates."""
    try:
        for source in _files(theirs / "objects"):
            to = ours / "objects" / source.parent.name / source.name
            to.parent.mkdir(exist_ok=True)
            os.link(source, to, follow_symlinks=False)
    except OSError:
        shutil.rmtree(ours / "objects")
        (ours / "objects").mkdir()
    for name, copy in (("shallow", _as_it_is), (str(ALTERNATES), _absolute)):
        with suppress(FileNotFoundError):
            lines = (theirs / name).read_bytes()
            (ours / name).parent.mkdir(exist_ok=True)
            (ours / name).write_bytes(copy(lines, theirs / "objects"))


def _files(objects: Path) -> Iterator[Path]:
    """Return loose objects first: a concurrent git creates the pack before it removes them."""
    folders = [path for path in objects.iterdir() if FOLDER.fullmatch(path.name) and path.is_dir()]
    for folder in folders:
        yield from (path for path in folder.iterdir() if LOOSE.fullmatch(path.name) and _is_file(path))
    yield from (path for path in (objects / "pack").iterdir() if PACKED.fullmatch(path.name) and _is_file(path))


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _as_it_is(lines: bytes, _: Path) -> bytes:
    return lines


def _absolute(lines: bytes, objects: Path) -> bytes:
    """Return the folders of alternates. Relative ones are resolved from the folder that lists them."""
    named = (os.fsdecode(line) for line in lines.splitlines() if line and not line.startswith(b"#"))
    return b"".join(os.fsencode(objects / name) + b"\n" for name in named)


# ---- branches --------------------------------------------------------------------------------------------------------
# Result branches in the user's repository that are no longer needed, because a branch of the user contains them.
#
# Merged means that the branch's commit, or its copy, is below a branch other than fleet's. `fleet merge` pins copies
# that passed there. Similar messages or patches do not count.


HEADS = "refs/heads/"
OURS = result_branch(RunId(""))


@dataclass(frozen=True, slots=True)
class ResultBranch:
    """A result branch, and whether it can be deleted."""

    target: Target
    name: str
    commit: Sha
    kept: str = ""
    """Why it must stay, or empty."""


async def result_branches(repository: Path, state_dir: Path, busy: Collection[RunId]) -> list[ResultBranch]:
    """Return the result branches of a repository. Empty if it is gone. `busy`: runs that may still move theirs."""
    try:
        target = await inspect(repository)
    except FleetError:
        return []
    heads = await target.git.refs(HEADS)
    found = {ref.removeprefix(HEADS): commit for ref, commit in heads.items() if ref.startswith(HEADS + OURS)}
    theirs = [commit for ref, commit in heads.items() if not ref.startswith(HEADS + OURS)]
    store = Store(home_of(state_dir, target))
    branches = []
    for name, commit in sorted(found.items()):
        kept = "its run has not ended" if name.removeprefix(OURS) in busy else ""
        kept = kept or await _why_kept(target, store, name, commit, theirs)
        branches.append(ResultBranch(target, name, commit, kept))
    return branches


async def _why_kept(target: Target, store: Store, name: str, commit: Sha, theirs: Collection[Sha]) -> str:
    if await find_checkout(target, name) is not None:
        return "it is checked out"
    run, copies = RunId(name.removeprefix(OURS)), list[Sha]()
    if store.git_dir.is_dir():
        copies = list((await store.git.refs(taken_refs(run, commit))).values())
    for each in (commit, *copies):
        if await _is_below(target.git, each, theirs):
            return ""
    return "it is not merged into another branch"


async def _is_below(git: Git, commit: Sha, tips: Collection[Sha]) -> bool:
    for tip in tips:
        if await git.is_ancestor(commit, tip):
            return True
    return False


async def delete_branch(branch: ResultBranch) -> None:
    """Delete a branch, unless it has moved since the check."""
    await branch.target.git.ask("update-ref", "-d", f"{HEADS}{branch.name}", branch.commit)


# ---- snapshot --------------------------------------------------------------------------------------------------------
# One commit for the planner to read: listings, files, a search and the history, from the store alone.
#
# All results are untrusted text from the repository. There is no worktree, so there are no links to follow.


READ_CAP = 256 * 1024
SEARCH_CAP = 64 * 1024
SEARCH_LINES = 200
LINE_WIDTH = 300
CHURN_COMMITS = 300
CHURN_CAP = 4 * 1024 * 1024
CHURN_PATHS = 15


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A commit in the store."""

    git: Git
    commit: Sha

    async def list_files(self, pattern: str | None = None) -> Sequence[str]:
        names = fields(await self.git("ls-tree", "-r", "-z", "--name-only", "--full-tree", self.commit))
        return [name for name in names if _is_wanted(name, pattern)]

    async def read_file(self, path: str) -> str:
        """Raises `WorkspaceError` if the file does not exist."""
        name = path.removeprefix("./")
        problem = path_problem(name)
        if problem:
            raise WorkspaceError(problem)
        question = partial(reader.file_at, commit=self.commit, path=name, most=READ_CAP)
        entry = await reader.read(self.git, question)
        if not isinstance(entry, tuple):
            raise WorkspaceError(f"{path} is a folder" if entry == "tree" else f"{path} does not exist")
        content, size = entry
        return text(content) + (f"\n[... {size - len(content)} bytes left out]\n" if size > len(content) else "")

    async def search(self, text: str, pattern: str | None = None) -> str:
        """Return lines that contain `text`, as `path:line: content`."""
        if not text.strip() or "\0" in text:
            raise WorkspaceError("the text to search for is empty")
        query = ("grep", "-n", "-I", "-z", "--no-color", "--fixed-strings", "-e", text, self.commit)
        raw = await self.git(*query, also_ok=(1,), cap=64 * SEARCH_CAP)
        hits = [hit for hit in map(self._hit, raw.split(b"\n")) if hit]
        lines = [f"{path}:{number}: {content}" for path, number, content in hits if _is_wanted(path, pattern)]
        more = [f"... and {len(lines) - SEARCH_LINES} more"] if len(lines) > SEARCH_LINES else []
        return "\n".join((*lines[:SEARCH_LINES], *more))[:SEARCH_CAP] or "nothing found"

    async def history(self, path: str | None = None, limit: int = 20) -> str:
        if path is not None and (problem := path_problem(path)):
            raise WorkspaceError(problem)
        question = partial(reader.history, commit=self.commit, path=path, limit=max(1, min(limit, 200)))
        commits = await reader.read(self.git, question)
        return commits if path is not None else f"{commits}\n\n{await self._churn()}"

    async def _churn(self) -> str:
        """Return the paths that most of the latest commits changed: tasks probably overlap there."""
        query = ("log", "-z", "--format=", "--name-only", "--no-renames", f"-{CHURN_COMMITS}", self.commit)
        changed = Counter(name for name in fields(await self.git(*query, cap=CHURN_CAP)) if name.strip())
        lines = [f"{count:5} {name}" for name, count in changed.most_common(CHURN_PATHS)]
        return "\n".join((f"changed most often in the last {CHURN_COMMITS} commits:", *lines))

    def _hit(self, raw: bytes) -> tuple[str, str, str] | None:
        place, _, rest = raw.partition(b"\0")
        number, _, content = rest.partition(b"\0")
        name = text(place).removeprefix(f"{self.commit}:")
        return (name, text(number), text(content)[:LINE_WIDTH]) if number.isdigit() else None


def _is_wanted(path: str, pattern: str | None) -> bool:
    return pattern is None or matches(path, (pattern,))


# ---- locks -----------------------------------------------------------------------------------------------------------
# Removes lock files and refs that a dead engine's git left in the store, before the next engine uses it.
#
# A lock is stale if no live process could hold it. The refs of a run belong to its engine alone, and the caller holds
# the run's lock. The rest of the store is shared, and is cleaned only while no git runs in it. The user's repository is
# not touched.


LOCK = ".lock"
PATIENCE_S, LOCK_POLL_S = 2.0, 0.02  # seconds that git may run on after its engine was killed
CONTENT = re.compile(rf"(?:{ID}|ref: refs/[^\n]+)\n?".encode())
SHARED = ("*.lock", "packed-refs.new", "worktrees/*/*.lock", "objects/info/*.lock", "objects/pack/*.lock")
_PROC = Path("/proc")


async def remove_stale_locks(store: Store, run: RunId, *, patience_s: float = PATIENCE_S) -> None:
    """Remove the locks and partial refs that could prevent this run from continuing."""
    if await to_thread.run_sync(_stale, store, run):
        await to_thread.run_sync(_wait_unused, store, patience_s)
        async with store.administration():
            await to_thread.run_sync(_remove_lock, store, run)


def _wait_unused(store: Store, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while _is_in_use(store) and time.monotonic() < deadline:
        time.sleep(LOCK_POLL_S)


def _remove_lock(store: Store, run: RunId) -> None:
    for path in _stale(store, run, with_shared=not _is_in_use(store)):
        path.unlink(missing_ok=True)


def _stale(store: Store, run: RunId, *, with_shared: bool = True) -> list[Path]:
    shared = (path for pattern in SHARED for path in store.git_dir.glob(pattern)) if with_shared else ()
    return [*_useless_files(store.git_dir / run_refs(run)), *shared]


def _useless_files(refs: Path) -> Iterator[Path]:
    """Return locks and empty refs: a power cut can leave an empty file of a recently written ref."""
    for folder, _, names in os.walk(refs):
        for path in (Path(folder, name) for name in names):
            if path.suffix == LOCK or CONTENT.fullmatch(path.read_bytes()) is None:
                yield path


def _is_in_use(store: Store) -> bool:
    """Whether a git process runs in this store."""
    variable = b"\0GIT_DIR=" + os.fsencode(store.git_dir) + b"\0"
    for name in os.listdir(_PROC):  # noqa: PTH208 - names only; this runs over every process of the machine
        if name.isdigit():
            with suppress(OSError):
                if variable in b"\0" + (_PROC / name / "environ").read_bytes() + b"\0":
                    return True
    return False
