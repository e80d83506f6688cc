"""A run as lines of text: nothing moves or is overwritten, so that a screen reader, a pipe or a log can follow."""

import sys
import time
from collections.abc import Iterable, Sequence

import anyio

from dashboards.summary import summary_lines
from dashboards.tables import status_lines
from dashboards.terminal.replayed import Replay
from dashboards.words import said
from fleet.app import Fleet
from fleet.cli.follow import stamp
from fleet.cli.watching import FolderFeed
from fleet.core.facts import Fact
from fleet.core.state import RunState
from fleet.core.views import status
from fleet.folders import RunFolder
from fleet.journal import replay
from fleet.ports import FleetError

TICK_S = 0.25
CHUNK = 1_000


async def tell(folder: RunFolder, *, speed: float | None, as_json: bool) -> None:
    """Everything that happened and happens, until the run ends or nobody works on it any more."""
    feed: FolderFeed | Replay = FolderFeed(folder.path.parent.parent, folder, _no_fleet)
    if speed is not None:
        feed = Replay(feed, time.time, speed)
    state: RunState | None = None
    after = 0
    while True:
        alive = feed.alive  # asked before reading: what was written until then is told
        while new := feed.read(after, CHUNK):
            state, after = _told(state, new, as_json=as_json), new[-1][0]
        sys.stdout.flush()
        if not alive or (state is not None and state.ended and speed is None):
            break
        await anyio.sleep(TICK_S)
    if state is not None and not as_json:
        _print(["", *_last(state)])


def _told(state: RunState | None, facts: Sequence[tuple[int, Fact]], *, as_json: bool) -> RunState | None:
    for seq, fact in facts:
        state = replay([(seq, fact)], state)
        if as_json:
            sys.stdout.write(fact.model_dump_json() + "\n")
        elif state is not None:
            _print(f"{stamp(state, fact)}  {line}" for line in (said(state, fact) or "").splitlines())
    return state


def _last(state: RunState) -> list[str]:
    now = time.time()
    if state.ended:
        return summary_lines(state, now)
    return status_lines(status(state, now, alive=False))


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")


def _no_fleet(state: RunState) -> Fleet:
    raise FleetError(f"{state.run} is only looked at")
