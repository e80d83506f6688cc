"""The runs as all pages see them: each journal is read once, however many browsers look at it."""

from collections.abc import Callable, Sequence
from time import perf_counter

from anyio import lowlevel

from dashboards.past import Past
from dashboards.run_follower import FollowedRun, Library, WatchedRun
from dashboards.web.access import note_bug
from fleet.errors import FleetError

LATEST = 30  # runs on the board; older ones have their pages all the same
DIFFS = 32  # that are kept
PASTS = 4  # runs whose replays are kept
SLICE_S = 0.05  # of reading, before a request may be answered


class FollowedRuns:
    """Runs of a state directory. Those with a page of their own also keep their events."""

    def __init__(self, library: Library, clock: Callable[[], float]) -> None:
        self.clock = clock
        self._library = library
        self._runs: dict[str, FollowedRun | None] = {}
        """None for a run that can't be read."""
        self._turn = 0
        self._diffs: dict[tuple[str, str, str], str] = {}
        self._pasts: dict[str, Past] = {}

    def latest(self) -> Sequence[FollowedRun]:
        """The latest runs that can be read, the latest first."""
        found = (self._follow(name) for name in self._library.names()[:LATEST])
        return [run for run in found if run is not None]

    def watched(self, name: str) -> WatchedRun | None:
        """A run with its events; None if there is none with this name that can be read."""
        run = self._runs.get(name)
        if isinstance(run, WatchedRun):
            return run
        if name not in self._library.names():
            return None
        try:
            opened = WatchedRun(self._library.open(name), self.clock)
        except FleetError:
            return None
        if run is not None:
            run.feed.close()
        self._runs[name] = opened
        return opened

    def look(self, seconds: float) -> set[str]:
        """Read what is new for about so long, in turn; return the runs about which there is something new."""
        self.latest()
        until, names, changed = perf_counter() + seconds, list(self._runs), set[str]()
        for _ in names:
            name = names[self._turn % len(names)]
            self._turn += 1
            if self._read(name, max(0.0, until - perf_counter())):
                changed.add(name)
            if perf_counter() >= until:
                break
        return changed

    async def load(self, run: FollowedRun, seconds: float) -> None:
        """Read a run to its end, if that takes no longer than so long."""
        until = perf_counter() + seconds
        run.look()
        while not run.loaded and perf_counter() < until:
            run.catch_up(SLICE_S)
            await lowlevel.checkpoint()

    def past(self, run: FollowedRun) -> Past:
        """The run at each of its moments, as far as that was read; the latest that were asked for are kept."""
        name = run.feed.run
        self._pasts[name] = past = self._pasts.pop(name, None) or Past(run.feed)
        while len(self._pasts) > PASTS:
            del self._pasts[next(iter(self._pasts))]
        return past

    async def read_past(self, past: Past, seconds: float) -> None:
        """Read it to its end, if that takes no longer than so long."""
        until = perf_counter() + seconds
        past.read(SLICE_S)
        while not past.loaded and perf_counter() < until:
            await lowlevel.checkpoint()
            past.read(SLICE_S)

    async def diff(self, run: FollowedRun, base: str, commit: str) -> str | None:
        """The patch between two commits of a run; None if they are no longer in the store. It never changes."""
        key = run.feed.run, base, commit
        if key not in self._diffs:
            patch = await run.feed.diff(base, commit)
            if patch is None:
                return None
            self._diffs[key] = patch
            while len(self._diffs) > DIFFS:
                del self._diffs[next(iter(self._diffs))]
        return self._diffs[key]

    def _follow(self, name: str) -> FollowedRun | None:
        if name not in self._runs:
            try:
                self._runs[name] = FollowedRun(self._library.open(name), self.clock)
            except FleetError:
                self._runs[name] = None
        return self._runs[name]

    def _read(self, name: str, seconds: float) -> bool:
        run = self._runs[name]
        if run is None:
            return False
        try:
            was_alive = run.alive
            run.look()
            return run.catch_up(seconds) or run.alive != was_alive
        except FleetError:
            pass
        except Exception as bug:  # noqa: BLE001 - one run that can't be followed takes no other with it
            note_bug(bug)
        run.feed.close()
        self._runs[name] = None
        self._pasts.pop(name, None)
        return True
