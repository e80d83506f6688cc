"""Templates: everything is escaped and made safe to show unless a template wrote it itself."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from zlib import crc32

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dashboards.past import Past
from dashboards.run_follower import FollowedRun, WatchedRun
from dashboards.subtask_map import Span, age, marked, model_name, needs
from dashboards.text.formats import clock_in, count, counted, duration, moment, money, rate, tool_call
from dashboards.text.safe import safe, safe_block, safe_goal
from dashboards.web.followed import FollowedRuns

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

    runs: FollowedRuns
    templates: Environment
    may_decide: bool
    query: Mapping[str, str]
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


# ---- rendering -------------------------------------------------------------------------------------------------------


LONGEST = 4_000  # characters of one text; conversations, logs and diffs come as lines


def _shown(value: object) -> object:
    """What a template prints for a value: text of others loses what could act on a reader's screen."""
    return safe(value, limit=LONGEST) if isinstance(value, str) and not isinstance(value, Markup) else value


def _lines(text: str, lines: int = 400) -> Markup:
    """A text of several lines, for a `pre`."""
    return Markup("\n").join(safe_block(text, lines=lines).split("\n"))


def _goal(text: str, limit: int) -> str:
    return safe_goal(text, limit=limit)


def _marked(state: str) -> Span:
    return marked(state)


def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        age=age,
        count=count,
        counted=counted,
        duration=duration,
        goal=_goal,
        money=money,
        moment=moment,
        lines=_lines,
        marked=_marked,
        model=model_name,
        tool_call=tool_call,
    )
    made.globals.update(clock_in=clock_in, rate=rate)
    return made


def version_of(html: str) -> str:
    """A short name for what a part of a page shows: it is sent again only if that changes."""
    return f"{crc32(html.encode('utf-8', 'replace')):08x}"


# ---- opening ---------------------------------------------------------------------------------------------------------
# The run that a page is about: as it is now, or as it was at one of its facts.


LOAD_S = 3.0  # a longer journal goes on loading while its page is open
PAST_S = 1.0  # a longer journal is read further each time that a page of its past is asked for
NUMBER = 9  # digits


async def opened(reader: Reader, name: str) -> WatchedRun:
    """The run with a name, as far as it can be read at once. Raises `NoSuchPageError`."""
    run = reader.runs.watched(name)
    if run is None:
        raise NoSuchPageError(f"There is no run {name}.")
    await reader.runs.load(run, LOAD_S)
    return run


async def opened_then(reader: Reader, name: str) -> tuple[Reader, WatchedRun]:
    """The run at the fact `at` of the query, and a reader whose links stay there and who decides nothing."""
    run = await opened(reader, name)
    if "at" not in reader.query:
        return reader, run
    past = await read_past(reader, run)
    if not len(past):
        return reader, run
    at = place(reader.query["at"], past)
    return replace(reader, at=at, may_decide=False), past.at(at)


async def read_past(reader: Reader, run: WatchedRun) -> Past:
    past = reader.runs.past(run)
    await reader.runs.read_past(past, PAST_S)
    return past


def place(text: str, past: Past) -> int:
    """The fact that is asked for; the last one unless the text says otherwise."""
    number = int(text) if text.isdecimal() and len(text) <= NUMBER else len(past)
    return min(max(1, number), len(past))
