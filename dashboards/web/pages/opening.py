"""The run that a page is about: as it is now, or as it was at one of its facts."""

from dataclasses import replace

from dashboards.runs.past import Past
from dashboards.runs.run_follower import WatchedRun
from dashboards.web.pages.page import NoSuchPageError, Reader

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
