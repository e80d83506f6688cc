"""Long journals: read with their progress on standard error, on a terminal, once that takes longer than a second."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

import typer

from dashboards.text.safe import safe
from fleet.cli.verbosity import is_quiet
from fleet.core.state.facts import Fact
from fleet.core.state.state import RunState
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder, without_collections

FIRST_S, EVERY_S = 1.0, 0.2
LINE = 70


class ReadingProgress:
    """How much of a journal was read, on one line of standard error if that is a terminal."""

    def __init__(self, run: str, *, clock: Callable[[], float] = monotonic, is_terminal: bool | None = None) -> None:
        self._is_wanted = not is_quiet() and (sys.stderr.isatty() if is_terminal is None else is_terminal)
        self._run = safe(run, limit=LINE // 2)
        self._clock = clock
        self._next = clock() + FIRST_S
        self._is_shown = False

    def show(self, read: int, total: int) -> None:
        if self._is_wanted and self._clock() >= self._next:
            self._next, self._is_shown = self._clock() + EVERY_S, True
            text = f"reading {self._run}: {read:,} of {total:,} facts"
            typer.echo(f"\r{text:<{LINE}}", err=True, nl=False)

    def clear(self) -> None:
        if self._is_shown:
            typer.echo(f"\r{' ' * LINE}\r", err=True, nl=False)


@contextmanager
def _shown(progress: ReadingProgress) -> Iterator[Callable[[int, int], None]]:
    try:
        yield progress.show
    finally:
        progress.clear()


def read_state(folder: RunFolder, progress: ReadingProgress | None = None) -> RunState:
    """The state of a run, with the progress of reading it."""
    with _shown(progress or ReadingProgress(folder.run)) as show:
        return folder.state(show)


@contextmanager
def reading(folder: RunFolder, journal: Journal) -> Iterator[Iterator[tuple[int, Fact]]]:
    """All facts of a run with their numbers, while the block lasts. They are read slice by slice."""

    def facts() -> Iterator[tuple[int, Fact]]:
        for seq, fact in journal.each():
            show(seq, total)
            yield seq, fact

    total = journal.last
    with _shown(ReadingProgress(folder.run)) as show, without_collections():
        yield facts()
