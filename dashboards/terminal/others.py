"""The other runs, as far as the header tells of them: which need somebody. Read a little at a time, and no more kept.

Knows no screen. A run that can't be read is left out: the page of runs leaves it out as well.
"""

from collections.abc import Callable, Sequence
from time import perf_counter

from dashboards.terminal.overview import needs
from dashboards.terminal.ports import Feed, Library
from fleet.core.evolve import evolve
from fleet.core.state import RunState
from fleet.ports import FleetError

SLICE = 200  # facts read at once
RUNS = 30  # the latest ones


class Glance:
    """One run: what is true of it, and nothing of how that came to be."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed
        self.state: RunState | None = None
        self.seq = 0
        self.alive = False
        self.loaded = False

    def take(self, until: float) -> None:
        """Read what is new, until that moment at most."""
        self.alive = self.feed.alive
        if self.loaded and not self.feed.changed():
            return
        self.loaded = False
        while not self.loaded and perf_counter() < until:
            new = self.feed.read(self.seq, SLICE)
            for self.seq, fact in new:
                self.state = evolve(self.state, fact)
            self.loaded = len(new) < SLICE

    def in_need(self, now: float) -> bool:
        return self.loaded and self.state is not None and bool(needs(self, self.state, now))


class Others:
    """All runs but the one that is watched."""

    def __init__(self, library: Library, clock: Callable[[], float]) -> None:
        self._library, self._clock = library, clock
        self._runs: dict[str, Glance | None] = {}
        """None for one that can't be read."""
        self._names: Sequence[str] = ()
        self._turn = 0
        self._needy: frozenset[str] = frozenset()

    def look(self, seconds: float, but: str) -> None:
        """Go on where the last look ended, for about so long. `but`: the run that is watched."""
        until, now = perf_counter() + seconds, self._clock()
        self._names = names = [name for name in self._library.names()[:RUNS] if name != but]
        self._runs = {name: run for name, run in self._runs.items() if name in names}
        for _ in names:
            self._take(names[self._turn % len(names)], until)
            if perf_counter() >= until:
                break
            self._turn += 1
        self._needy = frozenset(name for name, run in self._runs.items() if run is not None and run.in_need(now))

    def _take(self, name: str, until: float) -> None:
        try:
            run = self._runs[name] if name in self._runs else Glance(self._library.open(name))
            if run is not None:
                run.take(until)
            self._runs[name] = run
        except FleetError:
            self._runs[name] = None

    def in_need(self) -> list[str]:
        """The names of those that need somebody, the latest first."""
        return [name for name in self._names if name in self._needy]
