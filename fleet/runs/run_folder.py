"""The folders of runs in the state directory, each with a journal, a lock and transcripts."""

import errno
import gc
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from fleet.core.base.ids import RunId, is_slug, slug, suggestion
from fleet.core.history.evolve import Follower, OnFact, evolve
from fleet.core.policy.requests import fact_of, request_problem
from fleet.core.state.state import RunState
from fleet.errors import FleetError, UsageError
from fleet.runs.journal import Holder, Journal, holder

JOURNAL = "journal.db"
LEAST_FREE = 4 * 1024 * 1024  # bytes; required to write and read a journal at the same time
FULL = {errno.ENOSPC, errno.EDQUOT}
_FULL_HINT = "free some disk space, or set FLEET_STATE_DIR to another disk"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One run on disk."""

    path: Path

    @property
    def run(self) -> RunId:
        return RunId(self.path.name)

    @property
    def journal(self) -> Path:
        return self.path / JOURNAL

    @property
    def transcripts(self) -> Path:
        return self.path / "transcripts"

    @property
    def checks(self) -> Path:
        """The full output of checks, one log per check."""
        return self.path / "checks"

    @property
    def holder(self) -> Holder | None:
        """The process that runs it, or None."""
        return holder(self.journal)

    @property
    def alive(self) -> bool:
        """Whether a process runs it."""
        return self.holder is not None

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def state(self, show: Callable[[int, int], None] | None = None, on_fact: OnFact | None = None) -> RunState:
        """Read its state. Calls `show` from time to time with the number of facts read and their total."""
        follower = Follower(on_fact)
        with Journal(self.journal) as journal, without_collections():
            last = journal.last if show is not None else 0

            def may_continue() -> bool:
                if show is not None:
                    show(follower.seq, last)
                return True

            follower.catch_up(journal, may_continue)
        if follower.state is None:
            raise FleetError(
                f"{self.run} is empty: it was stopped before it started", hint=f"delete it: rm -r {self.path}"
            )
        return follower.state

    def requested_state(self) -> RunState:
        """The state after the requests in the inbox, even if no engine has applied them yet."""
        with Journal(self.journal) as journal:
            while True:
                requests = journal.requests()
                state = self.state()
                if journal.requests()[: len(requests)] == requests:  # otherwise some of them are facts by now
                    break
        for _, request in requests:
            if request_problem(state, request) is None:
                state = evolve(state, fact_of(state, request))
        return state


@contextmanager
def without_collections() -> Iterator[None]:
    """Disable garbage collection in the block. A replay makes no cycles, and collections took a third of its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()  # makes the objects old: otherwise the next collection scans them
            gc.enable()


def runs_dir(state_dir: Path) -> Path:
    return state_dir / "runs"


def make_state_dir(state_dir: Path) -> None:
    """Create the state directory, readable only for its owner. Raises `FleetError` if that fails."""
    try:
        runs_dir(state_dir).mkdir(parents=True, exist_ok=True, mode=0o700)
        probe = runs_dir(state_dir) / f".probe-{os.getpid()}"
        probe.write_bytes(b"x")
        probe.unlink()
        free = shutil.disk_usage(state_dir).free
    except OSError as error:
        if error.errno in FULL:
            raise FleetError(f"the disk of {state_dir} is full", hint=_FULL_HINT) from error
        hint = "set FLEET_STATE_DIR to a directory that you can write to"
        raise FleetError(f"can't write to the state directory {state_dir}: {error.strerror}", hint=hint) from error
    if free < LEAST_FREE:
        raise FleetError(f"the disk of {state_dir} is full", hint=_FULL_HINT)


def disk_full_advice(state_dir: Path, message: str) -> str | None:
    """Advice if a failure with this message means that the disk is full, otherwise None."""
    try:
        free = shutil.disk_usage(state_dir).free
    except OSError:
        return None
    if free >= LEAST_FREE and not any(os.strerror(number) in message for number in FULL):
        return None
    return f"the disk of {state_dir} is full ({free // 2**20} MB free): free some space"


def all_runs(state_dir: Path) -> list[RunFolder]:
    """All runs, the newest last."""
    folder = runs_dir(state_dir)
    runs = [RunFolder(path) for path in folder.iterdir() if (path / JOURNAL).is_file()] if folder.is_dir() else []
    return sorted(runs, key=lambda run: (run.journal.stat().st_ctime_ns, run.run))


def readable_runs(state_dir: Path) -> list[tuple[RunFolder, RunState]]:
    """The runs with a readable journal, in the order of their start."""
    runs = []
    for folder in all_runs(state_dir):
        with suppress(FleetError):
            runs.append((folder, folder.state()))
    return sorted(runs, key=lambda run: run[1].started_at)


def find_run(state_dir: Path, name: str) -> RunFolder:
    """Find a run by its name, or by its branch `fleet/NAME`."""
    name = name.removeprefix("fleet/")
    runs = all_runs(state_dir)
    for run in runs:
        if run.run == name:
            return run
    near = suggestion(name, [run.run for run in runs])
    raise UsageError(f"no run is called {name!r}", hint=near or "run `fleet runs --all` to list them")


@dataclass(frozen=True, slots=True)
class FirstFact:
    """A run and the state after its first fact, which takes one small read of its journal."""

    folder: RunFolder
    state: RunState | None
    """None if the journal can't be read."""

    def is_of(self, repository: Path | None) -> bool:
        """Whether it is a run in the repository with this git folder."""
        return self.state is not None and is_same_repository(self.state.repository, repository)


def runs_by_start(state_dir: Path) -> list[FirstFact]:
    """All runs in the order of their start. Unreadable runs come first."""
    runs = [FirstFact(folder, _first_state(folder)) for folder in all_runs(state_dir)]
    return sorted(runs, key=lambda run: run.state.started_at if run.state is not None else 0.0)


def _first_state(folder: RunFolder) -> RunState | None:
    """The state after the first fact, which identifies a run. None if it can't be read."""
    try:
        with Journal(folder.journal) as journal:
            return next((evolve(None, fact) for _, fact in journal.facts(limit=1)), None)
    except FleetError:
        return None


def new_run(state_dir: Path, goal: str, name: str | None) -> RunFolder:
    """The folder of a new run. Does not create it."""
    if name is not None:
        if not is_slug(name):
            raise UsageError(
                f"invalid run name: {name!r}", hint="use 1 to 64 letters, digits, dots, dashes or underscores"
            )
        folder = runs_dir(state_dir) / name
        if folder.exists():
            raise UsageError(
                f"a run called {name!r} already exists", hint=f"use another --name, or run `fleet resume {name}`"
            )
        return RunFolder(folder)
    words = slug(re.sub(r"^[#\s]+", "", goal))
    while (folder := runs_dir(state_dir) / f"{words}-{secrets.token_hex(2)}").exists():
        pass
    return RunFolder(folder)


# ---- repository ------------------------------------------------------------------------------------------------------
# Finds the repository of a folder without git, so without running a program or reading git configuration.


LARGEST = 4096  # bytes of a `.git` file, which contains one path


def root_of(path: Path) -> Path | None:
    """The root of the working tree that contains `path`."""
    folder = _absolute(path)
    return next((folder for folder in (folder, *folder.parents) if (folder / ".git").exists()), None)


def git_folder(path: Path) -> Path | None:
    """The folder with the objects of the repository that contains `path`, shared by all its worktrees."""
    folder = _absolute(path)
    for candidate in (folder, *folder.parents):
        inside = candidate / ".git"
        if inside.is_dir():
            return inside.resolve()
        if (named := _named_folder(inside)) is not None:
            shared = _first_line(named / "commondir")
            return (named / shared).resolve() if shared else named
        if (candidate / "HEAD").is_file() and all((candidate / name).is_dir() for name in ("objects", "refs")):
            return candidate.resolve()  # a bare repository, or inside `.git`
    return None


def is_same_repository(recorded: str, here: Path | None) -> bool:
    """Whether a recorded repository has the git folder `here`."""
    return here is not None and (git_folder(Path(recorded)) == here if Path(recorded).exists() else False)


def _absolute(path: Path) -> Path:
    try:
        return path.absolute()
    except FileNotFoundError as error:
        raise UsageError("the current folder no longer exists", hint="change to an existing folder with cd") from error


def _named_folder(file: Path) -> Path | None:
    """The folder named in the `.git` file of a linked worktree or a submodule."""
    mark, _, named = _first_line(file).partition(": ")
    return (file.parent / named).resolve() if mark == "gitdir" and named else None


def _first_line(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(LARGEST).decode("utf-8", "surrogateescape").partition("\n")[0]
    except (OSError, ValueError):
        return ""
