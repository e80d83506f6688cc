"""Where runs live: one folder a run below the state directory, with its journal, its lock and its transcripts."""

import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fleet.core.evolve import evolve
from fleet.core.ids import is_slug, slug
from fleet.core.nearest import did_you_mean
from fleet.core.requests import accept
from fleet.core.state import RunState
from fleet.journal import Holder, Journal, holder, replay
from fleet.ports import FleetError, UsageError

JOURNAL = "journal.db"
_FULL = "is on a full disk; free some space, or choose another place with FLEET_STATE_DIR"
LEAST_FREE = 4 * 1024 * 1024  # bytes; less holds no journal that is written and read at once, let alone a store


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One run on disk."""

    path: Path

    @property
    def run(self) -> str:
        return self.path.name

    @property
    def journal(self) -> Path:
        return self.path / JOURNAL

    @property
    def transcripts(self) -> Path:
        return self.path / "transcripts"

    @property
    def holder(self) -> Holder | None:
        """Who runs it now."""
        return holder(self.journal)

    @property
    def checks(self) -> Path:
        """All that checks printed, one log a check."""
        return self.path / "checks"

    @property
    def alive(self) -> bool:
        """Whether a process runs it now."""
        return self.holder is not None

    def remove(self) -> None:
        """Forget it, for a run that came to nothing."""
        shutil.rmtree(self.path, ignore_errors=True)

    def state(self) -> RunState:
        with Journal(self.journal) as journal:
            state = replay(journal.facts())
        if state is None:
            raise FleetError(f"{self.journal} is empty: its run was stopped before it began; `fleet clean` removes it")
        return state

    def asked(self) -> RunState:
        """What is true once the requests in its inbox are answered, which nobody may have looked at yet."""
        with Journal(self.journal) as journal:
            while True:
                requests = journal.requests()
                state = replay(journal.facts())
                if journal.requests()[: len(requests)] == requests:  # else some of them are facts by now
                    break
        if state is None:
            return self.state()
        for _, request in requests:
            state = evolve(state, request) if accept(state, request) is None else state
        return state


def runs_dir(state_dir: Path) -> Path:
    return state_dir / "runs"


def make_state_dir(state_dir: Path) -> None:
    """The state directory, ours alone; raises `FleetError` where that can't be."""
    try:
        runs_dir(state_dir).mkdir(parents=True, exist_ok=True, mode=0o700)
        probe = runs_dir(state_dir) / f".probe-{os.getpid()}"
        probe.write_bytes(b"x")
        probe.unlink()
        free = shutil.disk_usage(state_dir).free
    except OSError as error:
        raise FleetError(f"the state directory {state_dir} {_why(error)}") from error
    if free < LEAST_FREE:
        raise FleetError(f"the state directory {state_dir} {_FULL}")


FULL = {errno.ENOSPC, errno.EDQUOT}


def full(state_dir: Path, said: str) -> str | None:
    """What a person should do where something failed, with these words, because the disk is full."""
    try:
        free = shutil.disk_usage(state_dir).free
    except OSError:
        return None
    if free >= LEAST_FREE and not any(os.strerror(number) in said for number in FULL):
        return None
    return f"the disk of {state_dir} is full ({free // 2**20} MB are left): free some space there"


def _why(error: OSError) -> str:
    if error.errno in FULL:
        return _FULL
    return f"can't be written ({error.strerror}); choose another place with FLEET_STATE_DIR"


def all_runs(state_dir: Path) -> list[RunFolder]:
    """Every run there is, the newest last."""
    folder = runs_dir(state_dir)
    found = [RunFolder(path) for path in folder.iterdir() if (path / JOURNAL).is_file()] if folder.is_dir() else []
    return sorted(found, key=lambda run: ((run.path / JOURNAL).stat().st_ctime_ns, run.run))


def readable_runs(state_dir: Path) -> Iterator[tuple[RunFolder, RunState]]:
    """The runs whose journal can be read, the most recently begun last."""
    found = []
    for folder in all_runs(state_dir):
        try:
            found.append((folder, folder.state()))
        except FleetError:
            continue
    yield from sorted(found, key=lambda item: item[1].started_at)


def find_run(state_dir: Path, name: str | None, repository: Path | None = None) -> RunFolder:
    """The run called `name`; without a name the latest of this repository, else the latest of all."""
    runs = all_runs(state_dir)
    if name is not None:
        name = name.removeprefix("fleet/")
        for run in runs:
            if run.run == name:
                return run
        raise UsageError(f"no run is called {name!r}{did_you_mean(name, [run.run for run in runs])}; see `fleet runs`")
    if not runs:
        raise UsageError(f"there is no run yet in {state_dir}; begin one with `fleet run EPIC`")
    begun = sorted(((first, run) for run in runs if (first := _first(run))), key=lambda item: item[0].started_at)
    here = [run for first, run in begun if repository is not None and first.repository == str(repository)]
    return here[-1] if here else begun[-1][1] if begun else runs[-1]


def _first(folder: RunFolder) -> RunState | None:
    """How a run began: enough to tell which it is, however long its journal. None where that can't be read."""
    try:
        with Journal(folder.journal) as journal:
            return replay(journal.facts(limit=1))
    except FleetError:
        return None


def new_run(state_dir: Path, goal: str, name: str | None) -> RunFolder:
    """A folder for a run that does not exist yet."""
    if name is not None:
        if not is_slug(name):
            raise UsageError(f"{name!r} can't name a run: 1 to 64 letters, digits, dots, dashes or underscores")
        folder = runs_dir(state_dir) / name
        if folder.exists():
            raise UsageError(
                f"a run called {name!r} exists; `fleet resume {name}` goes on with it, or choose another name"
            )
        return RunFolder(folder)
    words = slug(re.sub(r"^[#\s]+", "", goal))
    while (folder := runs_dir(state_dir) / f"{words}-{secrets.token_hex(2)}").exists():
        pass
    return RunFolder(folder)
