"""Looks at a pull request again and again, until nothing more can be done about it."""

import time
from collections.abc import Awaitable, Callable

from anyio import sleep

from fleet.core.views.repository.tend_view import TendStatus, TendView
from fleet.errors import FleetError
from fleet.forge.errors import ForgeError, NotFoundError, NotLoggedInError, ProgramMissingError, RateLimitedError
from worktrees.target.remote import RemoteError

OVER: frozenset[TendStatus] = frozenset({"merged", "closed", "stopped", "gave_up", "interrupted"})
FIRST_S, LONGEST_S = 15.0, 900.0  # pauses after errors that may pass
FOR_GOOD = (NotFoundError, NotLoggedInError, ProgramMissingError)  # what only a person can change


def pause_after(error: FleetError, failures: int, now: float) -> float:
    """Seconds until another try after so many failures in a row, or until a rate limit ends."""
    usual = min(LONGEST_S, FIRST_S * 2.0 ** min(failures - 1, 10))
    if isinstance(error, RateLimitedError) and error.retry_at is not None:
        return min(3600.0, max(1.0, error.retry_at - now))
    return usual


async def watch(
    step: Callable[[], Awaitable[TendView]],
    *,
    poll_s: float,
    report: Callable[[TendView], None],
    note: Callable[[str], None],
    pause: Callable[[float], Awaitable[None]] = sleep,
) -> TendView:
    """Take steps until it is over. Raises what only a person can change."""
    failures, last = 0, None
    while True:
        try:
            view = await step()
        except (ForgeError, RemoteError) as error:
            if isinstance(error, FOR_GOOD):
                raise
            failures += 1
            wait = pause_after(error, failures, time.time())
            note(f"{error}; trying again in {wait:.0f} s")
            await pause(wait)
            continue
        failures = 0
        if view != last:
            report(view)
        last = view
        if view.status in OVER:
            return view
        await pause(0 if view.status == "working" else poll_s)
