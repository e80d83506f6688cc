"""Pauses a run in the hours of the day in which it is to start nothing, and lets it continue afterwards.

A pause is a request like a person's, in the journal with its reason. Who unpauses the run in these hours has the last
word, until they begin again.
"""

import math
import time
from collections.abc import Callable
from datetime import datetime

import anyio

from fleet.cli.common import send_requests
from fleet.core.base.hours import BY_HOURS, Hours, read_hours
from fleet.core.history.follower import Follower
from fleet.core.policy.requests import Request
from fleet.core.state.facts import Fact, Paused, Unpaused
from fleet.core.state.state import RunState
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder

LOOK_S = 5.0
Clock = Callable[[], datetime]


async def keep_hours(not_between: str, folder: RunFolder, clock: Clock = datetime.now) -> None:
    """Do so as long as the engine runs, if there are such hours or it rests since an earlier engine."""
    hours = read_hours(not_between)
    if hours is None and not folder.state().rests:
        return
    unpaused_at = -math.inf

    def note(_: RunState | None, fact: Fact, __: RunState) -> None:
        nonlocal unpaused_at
        if isinstance(fact, Unpaused) and fact.by != BY_HOURS:
            unpaused_at = fact.at

    follower = Follower(note)
    with Journal(folder.journal) as journal:
        while True:
            follower.catch_up(journal)
            is_asked = any(isinstance(request, Paused | Unpaused) for _, request in journal.requests())
            if follower.state is not None and not is_asked:
                request = due(follower.state, hours, clock(), unpaused_at)
                if request is not None:
                    send_requests(folder, request)
            await anyio.sleep(LOOK_S)


def due(state: RunState, hours: Hours | None, now: datetime, unpaused_at: float) -> Request | None:
    """What is to be requested: a pause in these hours, its end outside of them."""
    since = hours.since(now) if hours is not None else None
    if since is None:
        return Unpaused(at=time.time(), by=BY_HOURS) if state.rests else None
    if state.paused or unpaused_at >= since.timestamp():
        return None
    return Paused(at=time.time(), by=BY_HOURS)
