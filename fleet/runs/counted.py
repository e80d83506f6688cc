"""Counts the facts of all runs for metrics: each new one once, with the state before and after it.

A journal is opened only if its files have changed, so a thousand ended runs cost a thousand `stat` calls.
"""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fleet.core.base.ids import RunId
from fleet.core.facts.facts import Fact
from fleet.core.history.evolve import Follower, OnFact
from fleet.core.state.state import RunState
from fleet.core.state.status import is_refused, progress
from fleet.errors import FleetError
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder

FileStamps = tuple[int, ...]
MOST_ENDED = 20  # runs that ended, whose figures are kept


@dataclass(frozen=True, slots=True)
class EndedRun:
    """The figures of a run that ended."""

    run: RunId
    state: str
    """How it ended."""
    repository: str
    started_at: float
    seconds: float
    dollars: float
    landed: int
    subtasks: int


@dataclass(slots=True)
class CountedRun:
    """One run, as far as its journal was read."""

    folder: RunFolder
    counted: int = 0
    """The number of the last counted fact."""
    follower: Follower | None = None
    """None for an ended run, of which only the ending is kept."""
    ending: str | None = None
    ended: EndedRun | None = None
    rehearsal: bool = False
    """Whether it only replays history: it is in none of the numbers below."""
    stamps: FileStamps = ()
    """The journal's files at the time they were read."""
    readable: bool = True


@dataclass(slots=True)
class CountedRuns:
    """The runs that `folders` lists, kept up to date by `refresh`."""

    folders: Callable[[], Iterable[RunFolder]]
    on_fact: OnFact
    clock: Callable[[], float] = time.time
    lag_s: float = 0.0
    """The age of the latest fact when it was read."""
    _runs: dict[Path, CountedRun] = field(default_factory=dict)

    def refresh(self) -> None:
        """Read the new facts of all journals. A run whose folder was removed is dropped."""
        folders = {folder.path: folder for folder in self.folders()}
        self._runs = {path: run for path, run in self._runs.items() if path in folders}
        for path, folder in folders.items():
            self._read(self._runs.setdefault(path, CountedRun(folder)))

    def _read(self, run: CountedRun) -> None:
        """Count the new facts of a run. An ended run that was reopened is read from the beginning."""
        stamps = _stamps(run.folder.journal)
        if stamps == run.stamps:
            return
        run.stamps = stamps
        follower = run.follower or Follower()

        def count(before: RunState | None, fact: Fact, after: RunState) -> None:
            if follower.seq > run.counted:
                run.counted, self.lag_s = follower.seq, max(0.0, self.clock() - fact.at)
                self.on_fact(before, fact, after)

        follower.on_fact = count
        try:
            with Journal(run.folder.journal) as journal:
                follower.catch_up(journal)
        except (FleetError, ValueError, KeyError):  # a journal of a newer fleet, or a damaged one
            run.readable, run.follower, run.ending, run.ended = False, None, None, None
            return
        run.readable, state = True, follower.state
        if state is not None:
            run.rehearsal = state.rehearsal is not None
            run.ending, run.follower = state.ending, None if state.ended else follower
            run.ended = _ended(state) if state.ended else None

    def open(self) -> Iterator[tuple[RunState, bool]]:
        """The runs that have not ended, each with whether an engine is running it."""
        for run in self._runs.values():
            if run.follower is not None and run.follower.state is not None and not run.rehearsal:
                yield run.follower.state, run.folder.alive

    def ended(self) -> Counter[str]:
        return Counter(run.ending for run in self._runs.values() if run.ending is not None and not run.rehearsal)

    def latest_ended(self) -> list[EndedRun]:
        """The runs that ended, the latest first."""
        runs = [run.ended for run in self._runs.values() if run.ended is not None and not run.rehearsal]
        return sorted(runs, key=lambda run: -run.started_at)[:MOST_ENDED]

    def unreadable(self) -> int:
        return sum(not run.readable for run in self._runs.values())

    def journal_bytes(self) -> int:
        return sum(sum(run.stamps[1::2]) for run in self._runs.values())


def _ended(state: RunState) -> EndedRun:
    landed = progress(state)
    return EndedRun(
        run=state.run,
        state="refused" if is_refused(state) else state.ending or "",
        repository=state.repository,
        started_at=state.started_at,
        seconds=state.seconds(state.last_at),
        dollars=state.spent.priced_dollars,
        landed=landed.done,
        subtasks=landed.total,
    )


def free_bytes(path: Path) -> int:
    """The free space on the disk of a folder that may not exist yet."""
    existing = next((folder for folder in (path, *path.parents) if folder.exists()), path)
    try:
        return shutil.disk_usage(existing).free
    except OSError:
        return 0


def _stamps(journal: Path) -> FileStamps:
    """For each file of a journal, the time of its last change and its size."""
    stamps: list[int] = []
    for path in (journal, journal.with_name(f"{journal.name}-wal")):
        try:
            status = path.stat()
        except OSError:
            continue
        stamps += (status.st_mtime_ns, status.st_size)
    return tuple(stamps)
