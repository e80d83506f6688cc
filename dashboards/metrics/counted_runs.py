"""Count the facts of all runs for metrics, each once, with the state before and after it.

A journal is only opened if its files have changed, so a thousand ended runs cost a thousand `stat` calls.
"""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from fleet.core.base.ids import RunId
from fleet.core.history.evolve import Follower
from fleet.errors import FleetError
from fleet.read.figures import RunFigures
from fleet.read.follow import Step
from fleet.read.run import RunSnapshot, just_after
from fleet.read.run_view import RunStatus
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder

FileStamps = tuple[int, ...]
MOST_ENDED = 20  # ended runs with kept figures


@dataclass(frozen=True, slots=True)
class EndedRun:
    """The kept figures of an ended run."""

    run: RunId
    word: RunStatus
    started_at: float
    figures: RunFigures


@dataclass(slots=True)
class CountedRun:
    """A run, as far as its journal was read."""

    folder: RunFolder
    counted: int = 0
    """The number of the last counted fact."""
    follower: Follower | None = None
    """None for an ended run, which only keeps its ending."""
    ending: str | None = None
    ended: EndedRun | None = None
    """The figures, if it has ended."""
    rehearsal: bool = False
    """Whether it is a rehearsal, which the numbers below exclude."""
    stamps: FileStamps = ()
    """The state of the journal's files when they were last read."""
    readable: bool = True


@dataclass(slots=True)
class CountedRuns:
    """The runs listed by `folders`. `refresh` brings them up to date."""

    folders: Callable[[], Iterable[RunFolder]]
    take: Callable[[Step], None]
    """Called with each new fact."""
    clock: Callable[[], float] = time.time
    lag_s: float = 0.0
    """The age of the latest fact when it was read."""
    _runs: dict[Path, CountedRun] = field(default_factory=dict)

    def refresh(self) -> None:
        """Read the new facts of all journals. Drops runs whose folder was removed."""
        folders = {folder.path: folder for folder in self.folders()}
        self._runs = {path: run for path, run in self._runs.items() if path in folders}
        for path, folder in folders.items():
            self._read(self._runs.setdefault(path, CountedRun(folder)))

    def _read(self, run: CountedRun) -> None:
        """Count the new facts of a run. A reopened run is read again from the start."""
        stamps = _stamps(run.folder.journal)
        if stamps == run.stamps:
            return
        run.stamps = stamps
        follower = run.follower or Follower()
        follower.on_fact = lambda *step: self._count(run, follower.seq, Step(*step))
        try:
            with Journal(run.folder.journal) as journal:
                follower.catch_up(journal)
        except (FleetError, ValueError, KeyError):  # a damaged journal, or one from a newer version
            run.readable, run.follower, run.ending, run.ended = False, None, None, None
            return
        run.readable = True
        if follower.state is not None:
            now = just_after(follower.state)
            run.rehearsal, ending = now.figures.rehearsal, now.ending
            run.ending, run.follower = (ending.ending, None) if ending is not None else (None, follower)
            run.ended = _ended(replace(now, alive=False)) if ending is not None else None

    def _count(self, run: CountedRun, seq: int, it: Step) -> None:
        if seq > run.counted:
            run.counted, self.lag_s = seq, max(0.0, self.clock() - it.fact.at)
            self.take(it)

    def open(self, now: float) -> Iterator[RunSnapshot]:
        """The runs that have not ended."""
        for run in self._runs.values():
            if run.follower is not None and run.follower.state is not None and not run.rehearsal:
                yield RunSnapshot(run.follower.state, now, run.folder.alive)

    def ended(self) -> Counter[str]:
        return Counter(run.ending for run in self._runs.values() if run.ending is not None and not run.rehearsal)

    def latest_ended(self) -> list[EndedRun]:
        """The ended runs, latest first."""
        runs = [run.ended for run in self._runs.values() if run.ended is not None and not run.rehearsal]
        return sorted(runs, key=lambda run: -run.started_at)[:MOST_ENDED]

    def unreadable(self) -> int:
        return sum(not run.readable for run in self._runs.values())

    def journal_bytes(self) -> int:
        return sum(sum(run.stamps[1::2]) for run in self._runs.values())


def _ended(run: RunSnapshot) -> EndedRun:
    return EndedRun(run.run, run.word, run.started_at, run.figures)


def free_bytes(path: Path) -> int:
    """The free disk space for a folder, even if it does not exist yet."""
    existing = next((folder for folder in (path, *path.parents) if folder.exists()), path)
    try:
        return shutil.disk_usage(existing).free
    except OSError:
        return 0


def _stamps(journal: Path) -> FileStamps:
    """The modification time and size of each file of a journal."""
    stamps: list[int] = []
    for path in (journal, journal.with_name(f"{journal.name}-wal")):
        try:
            status = path.stat()
        except OSError:
            continue
        stamps += (status.st_mtime_ns, status.st_size)
    return tuple(stamps)
