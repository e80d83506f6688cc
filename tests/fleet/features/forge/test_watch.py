"""A watch waits for what passes, raises what only a person can change, and ends when it is over."""

from collections.abc import Callable

import pytest

from fleet.core.base.ids import RunId
from fleet.errors import FleetError
from fleet.features.forge.program import ForgeError, NotLoggedInError, RateLimitedError
from fleet.features.forge.pulls_view import TendStatus, TendView
from fleet.features.forge.tending import pause_after, watch
from worktrees.target.publish import RemoteError


def view(status: TendStatus, threads: int = 0) -> TendView:
    return TendView("gh:acme/shop#1", "", RunId("r"), status, "", None, threads, (), (), 0.0)


class Steps:
    """Steps with these results, and what was done between them."""

    def __init__(self, *results: TendView | FleetError) -> None:
        self.results, self.pauses, self.reported = list(results), list[float](), list[TendStatus]()

    async def step(self) -> TendView:
        result = self.results.pop(0)
        if isinstance(result, FleetError):
            raise result
        return result

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)

    async def watch(self, note: Callable[[str], None] = lambda _: None) -> TendView:
        return await watch(
            self.step, poll_s=60, report=lambda each: self.reported.append(each.status), note=note, pause=self.pause
        )


async def test_it_looks_again_until_it_is_over_and_reports_what_changes() -> None:
    steps = Steps(view("waiting"), view("waiting"), view("working"), view("quiet"), view("merged"))
    assert (await steps.watch()).status == "merged"
    assert steps.reported == ["waiting", "working", "quiet", "merged"]
    assert steps.pauses == [60, 60, 0, 60]


async def test_what_passes_is_waited_for_with_growing_pauses() -> None:
    notes: list[str] = []
    errors = [ForgeError("HTTP 502"), RemoteError("no route"), ForgeError("HTTP 502")]
    steps = Steps(*errors, view("quiet"), ForgeError("HTTP 502"), view("merged"))
    await steps.watch(notes.append)
    assert steps.pauses == [15, 30, 60, 60, 15]
    assert notes[0] == "HTTP 502. Trying again in 15 s"


async def test_what_only_a_person_can_change_is_raised() -> None:
    with pytest.raises(NotLoggedInError):
        await Steps(NotLoggedInError("gh is not logged in")).watch()


def test_a_rate_limit_is_waited_for_as_long_as_it_lasts() -> None:
    assert pause_after(RateLimitedError("x", retry_at=1_090.0), 1, 1_000.0) == 90
    assert pause_after(RateLimitedError("x", retry_at=900.0), 1, 1_000.0) == 1
    assert pause_after(RateLimitedError("x", retry_at=1e9), 1, 1_000.0) == 3600
    assert pause_after(RateLimitedError("x"), 1, 1_000.0) == 15
    assert pause_after(ForgeError("x"), 50, 0.0) == 900
