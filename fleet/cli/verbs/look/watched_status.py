"""`fleet status --watch`: the status of a run again and again, until nothing runs it any more."""

import json
import shutil
import sys
import time

import anyio

from dashboards.text.tables import status_lines
from fleet.cli import common
from fleet.config import environment
from fleet.core.history.follower import Follower
from fleet.core.views.dump import dump_view
from fleet.core.views.run.run_view import StatusView, status_view
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder

TICK_S = 1.0
CLEAR = "\x1b[H\x1b[J"  # the screen, from its first line on


def watch_status(folder: RunFolder, *, as_json: bool) -> None:
    in_place = sys.stdout.isatty() and environment.can_move_cursor() and not as_json
    with Journal(folder.journal) as journal:
        common.run_async(lambda: _watch(folder, journal, in_place=in_place, as_json=as_json))


async def _watch(folder: RunFolder, journal: Journal, *, in_place: bool, as_json: bool) -> None:
    follower, is_first = Follower(), True
    while True:
        alive = folder.alive  # before reading, so that everything written until then is shown
        has_news = follower.catch_up(journal)
        state = follower.state
        will_change = alive and (state is None or not state.ended)
        if state is not None and (has_news or in_place or not will_change):
            view = status_view(state, time.time(), alive=alive)
            if as_json:
                sys.stdout.write(json.dumps(dump_view(view), ensure_ascii=False) + "\n")
            elif in_place:
                _show_in_place(view, whole=not will_change)
            else:
                common.show([*([] if is_first else [""]), *status_lines(view)])
            sys.stdout.flush()
            is_first = False
        if not will_change:
            return
        await anyio.sleep(TICK_S)


def _show_in_place(view: StatusView, *, whole: bool) -> None:
    """Replace what the terminal shows. What does not fit is left out, but for the last time."""
    lines, room = list(status_lines(view)), shutil.get_terminal_size().lines - 2
    if len(lines) > room and not whole:
        lines = [*lines[:room], f"… {len(lines) - room} more lines"]
    sys.stdout.write(CLEAR)
    common.show(lines)
