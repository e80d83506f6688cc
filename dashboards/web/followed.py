"""The runs as all pages see them: each journal is read once, however many browsers look at it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from anyio import lowlevel
from jinja2 import Environment
from markupsafe import Markup

from dashboards.past import Past
from dashboards.subtask_map import needs
from dashboards.text.event_text import events_of
from dashboards.web.access import note_bug
from fleet.core.base.ids import Sha
from fleet.read.follow import FollowedRun, FollowedRuns, Library

DIFFS = 32  # that are kept
PASTS = 4  # runs whose replays are kept
SLICE_S = 0.05  # of reading, before a request may be answered


class WebRuns(FollowedRuns):
    """Runs of a state directory. Those with a page of their own also keep their events."""

    def __init__(self, library: Library, clock: Callable[[], float]) -> None:
        super().__init__(library, clock, note_bug=note_bug)
        self._diffs: dict[tuple[str, str, str], str] = {}
        self._pasts: dict[str, Past] = {}

    def watched(self, name: str) -> FollowedRun | None:
        """A run with its events; None if there is none with this name that can be read."""
        return self.told(name, events_of)

    def _forget(self, name: str) -> None:
        self._pasts.pop(name, None)
        super()._forget(name)

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

    async def diff(self, run: FollowedRun, base: Sha, commit: Sha) -> str | None:
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


# ---- page ------------------------------------------------------------------------------------------------------------
# What a page is made of, and what all pages know.


class NoSuchPageError(Exception):
    """There is no page at this address; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A page as it is now."""

    title: str
    parts: Mapping[str, Markup]
    """By the id of the element that holds it."""
    is_live: bool = True
    """Whether it changes by itself, with time or with the run."""


@dataclass(frozen=True, slots=True)
class Reader:
    """What pages are made from, for one reader."""

    runs: WebRuns
    templates: Environment
    may_decide: bool
    query: Mapping[str, str]
    pages: Sequence[str] = ()
    """What features add to the pages of a run."""
    at: int | None = None
    """The place of the fact at which a run is shown; None: as it is now."""

    @property
    def then(self) -> str:
        """What links to other pages of the run end with, so that they show the same moment."""
        return f"?at={self.at}" if self.at is not None else ""

    def part(self, name: str, **values: object) -> Markup:
        """The part that a template draws."""
        template = self.templates.get_template(f"parts/{name}.html")
        moment = {"then": self.then, "and_then": self.then.replace("?", "&")}
        return Markup(template.render(may_decide=self.may_decide, **moment, **values))  # noqa: S704 - it escapes

    def waiting(self) -> int:
        """How many things wait for a person, in all runs."""
        return sum(len(needs(run)) for run in self.runs.latest())


def repository_name(run: FollowedRun) -> str:
    return run.state.repository.rstrip("/").rpartition("/")[2] if run.state is not None else ""


# ---- opening ---------------------------------------------------------------------------------------------------------
# The run that a page is about: as it is now, or as it was at one of its facts.


LOAD_S = 3.0  # a longer journal goes on loading while its page is open
PAST_S = 1.0  # a longer journal is read further each time that a page of its past is asked for
NUMBER = 9  # digits


async def opened(reader: Reader, name: str) -> FollowedRun:
    """The run with a name, as far as it can be read at once. Raises `NoSuchPageError`."""
    run = reader.runs.watched(name)
    if run is None:
        raise NoSuchPageError(f"There is no run {name}.")
    await reader.runs.load(run, LOAD_S)
    return run


async def opened_then(reader: Reader, name: str) -> tuple[Reader, FollowedRun]:
    """The run at the fact `at` of the query, and a reader whose links stay there and who decides nothing."""
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
    """The fact that is asked for; the last one unless the text says otherwise."""
    number = int(text) if text.isdecimal() and len(text) <= NUMBER else len(past)
    return min(max(1, number), len(past))
