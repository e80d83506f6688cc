"""The folders of runs: one for each run below the state directory, with its journal, lock and transcripts."""

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

from fleet.core.base.ids import RunId, did_you_mean, is_slug, slug
from fleet.core.history.evolve import Follower, OnFact, evolve
from fleet.core.policy.requests import fact_of, request_problem
from fleet.core.state.state import RunState
from fleet.errors import FleetError, UsageError
from fleet.runs.journal import Holder, Journal, holder

JOURNAL = "journal.db"
LEAST_FREE = 4 * 1024 * 1024  # bytes; a journal that is written and read at once needs that much
FULL = {errno.ENOSPC, errno.EDQUOT}
_FULL_MESSAGE = "is on a full disk; free some space, or choose another place with FLEET_STATE_DIR"


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
        """The complete output of checks, one log each."""
        return self.path / "checks"

    @property
    def holder(self) -> Holder | None:
        """The process that runs it now."""
        return holder(self.journal)

    @property
    def alive(self) -> bool:
        """Whether a process runs it now."""
        return self.holder is not None

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def state(self, show: Callable[[int, int], None] | None = None, on_fact: OnFact | None = None) -> RunState:
        """Its state. `show` is told now and then how many facts were read, and how many there are."""
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
                f"{self.journal} is empty: its run was stopped before it began", hint="`fleet clean` removes it"
            )
        return follower.state

    def requested_state(self) -> RunState:
        """The state after the requests in the inbox, even if no engine has answered them yet."""
        with Journal(self.journal) as journal:
            while True:
                requests = journal.requests()
                state = self.state()
                if journal.requests()[: len(requests)] == requests:  # else some of them are facts by now
                    break
        for _, request in requests:
            if request_problem(state, request) is None:
                state = evolve(state, fact_of(state, request))
        return state


@contextmanager
def without_collections() -> Iterator[None]:
    """No search for cycles of garbage in the block: a replay makes none, and the search took a third of its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()  # what was read counts as old: else enabling begins with a look at all of it
            gc.enable()


def runs_dir(state_dir: Path) -> Path:
    return state_dir / "runs"


def make_state_dir(state_dir: Path) -> None:
    """Make the state directory, readable for its owner only. Raises `FleetError` if that is impossible."""
    try:
        runs_dir(state_dir).mkdir(parents=True, exist_ok=True, mode=0o700)
        probe = runs_dir(state_dir) / f".probe-{os.getpid()}"
        probe.write_bytes(b"x")
        probe.unlink()
        free = shutil.disk_usage(state_dir).free
    except OSError as error:
        why = f"can't be written ({error.strerror}); choose another place with FLEET_STATE_DIR"
        raise FleetError(f"the state directory {state_dir} {_FULL_MESSAGE if error.errno in FULL else why}") from error
    if free < LEAST_FREE:
        raise FleetError(f"the state directory {state_dir} {_FULL_MESSAGE}")


def disk_full_advice(state_dir: Path, message: str) -> str | None:
    """What a person should do if a failure with this message means that the disk is full; None otherwise."""
    try:
        free = shutil.disk_usage(state_dir).free
    except OSError:
        return None
    if free >= LEAST_FREE and not any(os.strerror(number) in message for number in FULL):
        return None
    return f"the disk of {state_dir} is full ({free // 2**20} MB are left): free some space there"


def all_runs(state_dir: Path) -> list[RunFolder]:
    """All runs, the newest last."""
    folder = runs_dir(state_dir)
    runs = [RunFolder(path) for path in folder.iterdir() if (path / JOURNAL).is_file()] if folder.is_dir() else []
    return sorted(runs, key=lambda run: (run.journal.stat().st_ctime_ns, run.run))


def readable_runs(state_dir: Path) -> list[tuple[RunFolder, RunState]]:
    """The runs whose journal can be read, the one that started last at the end."""
    runs = []
    for folder in all_runs(state_dir):
        with suppress(FleetError):
            runs.append((folder, folder.state()))
    return sorted(runs, key=lambda run: run[1].started_at)


def find_run(state_dir: Path, name: str) -> RunFolder:
    """The run called `name`, or `fleet/NAME` as its branch."""
    name = name.removeprefix("fleet/")
    runs = all_runs(state_dir)
    for run in runs:
        if run.run == name:
            return run
    raise UsageError(
        f"no run is called {name!r}{did_you_mean(name, [run.run for run in runs])}", hint="see `fleet runs --all`"
    )


@dataclass(frozen=True, slots=True)
class FirstFact:
    """A run and what its first fact says; that costs one small read of its journal."""

    folder: RunFolder
    state: RunState | None
    """None if the journal can't be read."""

    def is_of(self, repository: Path | None) -> bool:
        """Whether it is a run of the repository with this git folder."""
        return self.state is not None and is_same_repository(self.state.repository, repository)


def runs_by_start(state_dir: Path) -> list[FirstFact]:
    """All runs, the one that started last at the end; those that can't be read come first."""
    runs = [FirstFact(folder, _first_state(folder)) for folder in all_runs(state_dir)]
    return sorted(runs, key=lambda run: run.state.started_at if run.state is not None else 0.0)


def _first_state(folder: RunFolder) -> RunState | None:
    """The state after the first fact, which is enough to identify a run; None if it can't be read."""
    try:
        with Journal(folder.journal) as journal:
            return next((evolve(None, fact) for _, fact in journal.facts(limit=1)), None)
    except FleetError:
        return None


def new_run(state_dir: Path, goal: str, name: str | None) -> RunFolder:
    """The folder of a new run; it is not made yet."""
    if name is not None:
        if not is_slug(name):
            raise UsageError(f"{name!r} can't name a run: 1 to 64 letters, digits, dots, dashes or underscores")
        folder = runs_dir(state_dir) / name
        if folder.exists():
            raise UsageError(
                f"a run called {name!r} exists", hint=f"choose another name, or resume it: fleet resume {name}"
            )
        return RunFolder(folder)
    words = slug(re.sub(r"^[#\s]+", "", goal))
    while (folder := runs_dir(state_dir) / f"{words}-{secrets.token_hex(2)}").exists():
        pass
    return RunFolder(folder)


# ---- repository ------------------------------------------------------------------------------------------------------
# Which repository a folder belongs to, found without git: it runs no program and reads no configuration.


LARGEST = 4096  # bytes of a `.git` file; git's own name one path


def root_of(path: Path) -> Path | None:
    """The root of the working tree that contains `path`."""
    folder = _absolute(path)
    return next((folder for folder in (folder, *folder.parents) if (folder / ".git").exists()), None)


def git_folder(path: Path) -> Path | None:
    """The folder with the objects of the repository that contains `path`; all its worktrees share that folder."""
    folder = _absolute(path)
    for candidate in (folder, *folder.parents):
        inside = candidate / ".git"
        if inside.is_dir():
            return inside.resolve()
        if (named := _named_folder(inside)) is not None:
            shared = _first_line(named / "commondir")
            return (named / shared).resolve() if shared else named
        if (candidate / "HEAD").is_file() and all((candidate / name).is_dir() for name in ("objects", "refs")):
            return candidate.resolve()  # a bare repository, or inside of `.git`
    return None


def is_same_repository(recorded: str, here: Path | None) -> bool:
    """Whether the repository that a run has recorded is the one with the git folder `here`."""
    return here is not None and (git_folder(Path(recorded)) == here if Path(recorded).exists() else False)


def _absolute(path: Path) -> Path:
    try:
        return path.absolute()
    except FileNotFoundError as error:
        raise UsageError(
            "the current folder no longer exists", hint="change to the repository: cd REPOSITORY"
        ) from error


def _named_folder(file: Path) -> Path | None:
    """The folder that the `.git` file of a linked worktree or of a submodule names."""
    mark, _, named = _first_line(file).partition(": ")
    return (file.parent / named).resolve() if mark == "gitdir" and named else None


def _first_line(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(LARGEST).decode("utf-8", "surrogateescape").partition("\n")[0]
    except (OSError, ValueError):
        return ""
