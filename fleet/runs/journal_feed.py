"""A run on disk, as a feed."""

from collections.abc import Sequence
from typing import Self

from fleet.core.base.ids import RunId
from fleet.core.facts.facts import Fact
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder


class JournalFeed:
    """The journal of a run, and whether a process runs it, for readers."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder, self._journal = folder, Journal(folder.journal)
        self.closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._journal.close()
        self.closed = True

    @property
    def run(self) -> RunId:
        return self._folder.run

    @property
    def alive(self) -> bool:
        return self._folder.alive

    def facts(self, after: int, limit: int) -> Sequence[tuple[int, Fact]]:
        return self._journal.facts(after, limit)

    def changed(self) -> bool:
        return self._journal.changed()
