"""The runs for all pages. Each journal is read once, regardless of the number of browsers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from anyio import lowlevel
from jinja2 import Environment
from markupsafe import Markup

from dashboards.state_history import Past
from dashboards.subtask_map import needs
from dashboards.text.event_text import events_of
from dashboards.web.access import note_bug
from fleet.core.base.ids import Sha
from fleet.read.follow import FollowedRun, FollowedRuns, RunLibrary

DIFFS = 32  # cached diffs
PASTS = 4  # cached replays
SLICE_S = 0.05  # of reading, before other requests get a turn


class WebRuns(FollowedRuns):
    """The runs of a state directory. Runs with an open page also keep their events."""

    def __init__(self, library: RunLibrary, clock: Callable[[], float]) -> None:
        super().__init__(library, clock, note_bug=note_bug)
        self._diffs: dict[tuple[str, str, str], str] = {}
        self._pasts: dict[str, Past] = {}

    def watched(self, name: str) -> FollowedRun | None:
        """A run with its events. None if it does not exist or can't be read."""
        return self.told(name, events_of)

    def _forget(self, name: str) -> None:
        self._pasts.pop(name, None)
        super()._forget(name)

    async def load(self, run: FollowedRun, seconds: float) -> None:
        """Read a run for at most `seconds`, or to its end."""
        until = perf_counter() + seconds
        run.look()
        while not run.loaded and perf_counter() < until:
            run.catch_up(SLICE_S)
            await lowlevel.checkpoint()

    def past(self, run: FollowedRun) -> Past:
        """The run at each of its moments, as far as it was read. Cached for recently used runs."""
        name = run.feed.run
        self._pasts[name] = past = self._pasts.pop(name, None) or Past(run.feed)
        while len(self._pasts) > PASTS:
            del self._pasts[next(iter(self._pasts))]
        return past

    async def read_past(self, past: Past, seconds: float) -> None:
        """Read a replay for at most `seconds`, or to its end."""
        until = perf_counter() + seconds
        past.read(SLICE_S)
        while not past.loaded and perf_counter() < until:
            await lowlevel.checkpoint()
            past.read(SLICE_S)

    async def diff(self, run: FollowedRun, base: Sha, commit: Sha) -> str | None:
        """The patch between two commits of a run, cached. None if they are no longer in the store."""
        key = run.feed.run, base, commit
        if key not in self._diffs:
            patch = await run.feed.diff(base, commit)
            if patch is None:
                return None
            self._diffs[key] = patch
            while len(self._diffs) > DIFFS:
                del self._diffs[next(iter(self._diffs))]
        return self._diffs[key]


# ---- page ------------------------------------------------------------------------------------------------------------
# The parts of a page, and the values that all pages share.


class NoSuchPageError(Exception):
    """No page exists at this address. The message names the missing item."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A rendered page."""

    title: str
    parts: Mapping[str, Markup]
    """By the id of their element."""
    is_live: bool = True
    """Whether the page is updated while it is open."""


@dataclass(frozen=True, slots=True)
class Reader:
    """The values for rendering pages, for one reader."""

    runs: WebRuns
    templates: Environment
    may_decide: bool
    query: Mapping[str, str]
    pages: Sequence[str] = ()
    """The pages that features add to a run."""
    at: int | None = None
    """The fact at which a run is shown. None means now."""

    @property
    def then(self) -> str:
        """The suffix of links to other pages of the run, so that they show the same moment."""
        return f"?at={self.at}" if self.at is not None else ""

    def part(self, name: str, **values: object) -> Markup:
        """Render the template of a part."""
        template = self.templates.get_template(f"parts/{name}.html")
        moment = {"then": self.then, "and_then": self.then.replace("?", "&")}
        return Markup(template.render(may_decide=self.may_decide, **moment, **values))  # noqa: S704 - it escapes

    def waiting(self) -> int:
        """The number of pending requests to a person, over all runs."""
        return sum(len(needs(run)) for run in self.runs.latest())


def repository_name(run: FollowedRun) -> str:
    return run.state.repository.rstrip("/").rpartition("/")[2] if run.state is not None else ""


# ---- opening ---------------------------------------------------------------------------------------------------------
# The run of a page: now, or at one of its facts.


LOAD_S = 3.0  # a longer journal continues to load while its page is open
PAST_S = 1.0  # a longer journal is read further at each request for a page of its past
NUMBER = 9  # digits


async def opened(reader: Reader, name: str) -> FollowedRun:
    """The run with a name, as far as it can be read in `LOAD_S`. Raises `NoSuchPageError`."""
    run = reader.runs.watched(name)
    if run is None:
        raise NoSuchPageError(f"Run {name} not found.")
    await reader.runs.load(run, LOAD_S)
    return run


async def opened_then(reader: Reader, name: str) -> tuple[Reader, FollowedRun]:
    """The run at the fact `at` of the query, and a read-only reader whose links keep that moment."""
    run = await opened(reader, name)
    if "at" not in reader.query:
        return reader, run
    past = await read_past(reader, run)
    if not len(past):
        return reader, run
    at = place(reader.query["at"], past)
    return replace(reader, at=at, may_decide=False), past.at(at)


async def read_past(reader: Reader, run: FollowedRun) -> Past:
    past = reader.runs.past(run)
    await reader.runs.read_past(past, PAST_S)
    return past


def place(text: str, past: Past) -> int:
    """The requested fact. Defaults to the last one."""
    number = int(text) if text.isdecimal() and len(text) <= NUMBER else len(past)
    return min(max(1, number), len(past))
