"""Follows many journals at once, for whoever counts what happens: each new fact comes with the state before and after.

A journal is opened only when its files changed, so a thousand ended runs cost a thousand looks and no descriptors.
"""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fleet.core.evolve import evolve
from fleet.core.facts import Fact
from fleet.core.state import RunState
from fleet.folders import RunFolder
from fleet.journal import Journal
from fleet.ports import FleetError

OnFact = Callable[[RunState | None, Fact, RunState], None]
Mark = tuple[int, ...]


@dataclass(slots=True)
class Watched:
    """What is known of one run."""

    folder: RunFolder
    seq: int = 0
    state: RunState | None = None
    """None for an ended run: nothing but how it ended is needed of it."""
    ending: str | None = None
    mark: Mark = ()
    """What its files looked like when they were read."""
    readable: bool = True


@dataclass(slots=True)
class Watching:
    """The runs that `folders` finds, kept up to date by `refresh`."""

    folders: Callable[[], Iterable[RunFolder]]
    on_fact: OnFact
    clock: Callable[[], float] = time.time
    lag_s: float = 0.0
    """How old the latest fact was when it was read."""
    _runs: dict[Path, Watched] = field(default_factory=dict)

    def refresh(self) -> None:
        """Read what is new in all journals. A run that is gone is forgotten."""
        there = {folder.path: folder for folder in self.folders()}
        self._runs = {path: run for path, run in self._runs.items() if path in there}
        for path, folder in there.items():
            self._read(self._runs.setdefault(path, Watched(folder)))

    def _read(self, run: Watched) -> None:
        mark = _mark(run.folder.journal)
        if mark == run.mark:
            return
        try:
            self._take(run)
        except (FleetError, ValueError, KeyError):  # a journal of a newer fleet, or a damaged one
            run.readable, run.mark, run.state, run.ending = False, mark, None, None
        else:
            run.readable, run.mark = True, mark

    def _take(self, run: Watched) -> None:
        """Count the new facts of a run. Of an ended one no state was kept: where it goes on, it is read again."""
        counted, state = run.seq, run.state
        with Journal(run.folder.journal) as journal:
            facts = journal.facts(counted)
            if facts and state is None:
                facts = journal.facts()
        for seq, fact in facts:
            before, state = state, evolve(state, fact)
            if seq > counted:
                self.on_fact(before, fact, state)
                run.seq, self.lag_s = seq, max(0.0, self.clock() - fact.at)
        if state is not None:
            run.ending = state.ending
            run.state = None if state.ended else state

    def open(self) -> Iterator[tuple[RunState, bool]]:
        """Runs that have not ended, and whether an engine works on them."""
        for run in self._runs.values():
            if run.state is not None:
                yield run.state, run.folder.alive

    def ended(self) -> Counter[str]:
        return Counter(run.ending for run in self._runs.values() if run.ending is not None)

    def unreadable(self) -> int:
        return sum(not run.readable for run in self._runs.values())

    def journal_bytes(self) -> int:
        return sum(sum(run.mark[1::2]) for run in self._runs.values())


def free_bytes(path: Path) -> int:
    here = next((folder for folder in (path, *path.parents) if folder.exists()), path)
    try:
        return shutil.disk_usage(here).free
    except OSError:
        return 0


def _mark(journal: Path) -> Mark:
    """When the files of a journal changed, and how large they are: pairs."""
    found: list[int] = []
    for path in (journal, journal.with_name(f"{journal.name}-wal")):
        try:
            status = path.stat()
        except OSError:
            continue
        found += (status.st_mtime_ns, status.st_size)
    return tuple(found)
