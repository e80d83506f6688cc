"""Works on a run that lands a result again, and shows its events: live lines on a terminal, else one line each."""

import signal

from fleet.app.fleet import Fleet
from fleet.cli.common import has_terminal
from fleet.cli.live.engine import run_engine
from fleet.cli.live.follow import RunDisplay, open_screen
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


async def work(fleet: Fleet, folder: RunFolder, *, as_json: bool) -> None:
    """Work until the run has ended or is stopped. What it began with is not shown: it was done before."""
    with Journal(folder.journal) as journal:
        shown = journal.length
    live = has_terminal() and not as_json
    with open_screen(live=live, as_json=not live) as screen:
        events = RunDisplay(folder, screen, shown, interactive=False)
        await run_engine(fleet, folder, None, STOPS, events)
