"""When a call is made, how often it is tried, and how long the fleet holds back. Time is ours here."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio
import pytest

from agents.models.answer import Answer, CallFault, Request
from agents.models.calls import Caller, Patience, Timing, backoff_s
from agents.transcripts import Transcript
from fleet.core.facts import Failure
from fleet.core.usage import Usage
from tests.agents.conftest import SEEDED, Purse

pytestmark = pytest.mark.anyio
PATIENCE = Patience(retries=4, backoff_first_s=1, backoff_cap_s=8, retry_after_cap_s=120, pause_s=5, spread_s=1)
REQUEST = Request("claude-haiku-5-5", 100, "", (), ())
FINE = Answer((), "end_turn", Usage(output=1), "claude-haiku-5-5")
BROKEN = CallFault("transient", "broken", usage=Usage(input=7))


@dataclass
class Hours:
    """A clock that only moves when someone sleeps."""

    at: float = 1000.0
    slept: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.at

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        until = self.at + seconds
        for _ in range(30):  # so that all who sleep have lain down before the first one wakes up
            await anyio.lowlevel.checkpoint()
        self.at = max(self.at, until)


@dataclass
class Replies:
    """A model that says these things in turn."""

    left: list[Answer | CallFault]
    asked_at: list[float] = field(default_factory=list)
    hours: Hours = field(default_factory=Hours)

    async def ask(self, request: Request) -> Answer | CallFault:
        assert request == REQUEST
        self.asked_at.append(self.hours.now())
        return self.left.pop(0)


def caller_for(replies: Replies) -> Caller:
    timing = Timing(now=replies.hours.now, sleep=replies.hours.sleep)
    return Caller(replies, PATIENCE, {}, chance=SEEDED, timing=timing)


async def call(replies: Replies, purse: Purse | None = None) -> Answer | Failure:
    return await caller_for(replies).call(REQUEST, purse or Purse(), Transcript(None), turn=1)


def limit(seconds: float | None = None) -> CallFault:
    return CallFault("transient", "slow down", retry_after_s=seconds, limits_fleet=True)


async def test_a_broken_call_is_tried_again_and_what_it_used_is_reported() -> None:
    purse = Purse()
    assert await call(Replies([BROKEN, FINE]), purse) == FINE
    assert [use.usage for use in purse.uses] == [Usage(input=7), Usage(output=1)]


async def test_after_so_many_tries_it_is_a_failure() -> None:
    replies = Replies([BROKEN] * 9)
    failure = await call(replies)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.summary) == ("transient", "broken")
    assert len(replies.asked_at) == 4


@pytest.mark.parametrize(
    ("fault", "kind"),
    [("configuration", "configuration"), ("too_long", "too_complex"), ("other", "other")],
)
async def test_what_waiting_does_not_mend_is_not_tried_again(fault: str, kind: str) -> None:
    replies = Replies([CallFault(fault, "no")])  # type: ignore[arg-type] # the table above holds only kinds
    failure = await call(replies)
    assert isinstance(failure, Failure)
    assert failure.kind == kind


async def test_a_wait_that_is_asked_for_is_kept() -> None:
    replies = Replies([limit(30), FINE])
    assert await call(replies) == FINE
    assert 30 <= replies.asked_at[1] - replies.asked_at[0] <= 31


async def test_a_wait_of_weeks_is_cut_short() -> None:
    replies = Replies([limit(2_592_000), FINE])
    await call(replies)
    assert 120 <= replies.asked_at[1] - replies.asked_at[0] <= 121


async def test_one_callers_limit_holds_the_whole_fleet_back_and_lets_it_go_one_by_one() -> None:
    replies = Replies([limit(30), *[FINE] * 21])
    caller = caller_for(replies)

    async def one() -> None:
        assert await caller.call(REQUEST, Purse(), Transcript(None), turn=1) == FINE

    async with anyio.create_task_group() as fleet:
        fleet.start_soon(one)
        await anyio.lowlevel.checkpoint()
        for _ in range(20):
            fleet.start_soon(one)
    first, *others = replies.asked_at
    assert len(others) == 21
    assert min(others) >= first + 30
    assert len(set(replies.hours.slept)) > 15


async def test_no_call_without_a_budget() -> None:
    replies = Replies([FINE])
    failure = await call(replies, Purse(calls_left=0))
    assert isinstance(failure, Failure)
    assert failure.kind == "spent"
    assert replies.asked_at == []


def test_backoff_is_jittered_grows_and_is_bounded() -> None:
    for failures, bound in ((1, 1), (2, 2), (3, 4), (4, 8), (50, 8), (5000, 8)):
        waits: Sequence[float] = [backoff_s(failures, PATIENCE, SEEDED) for _ in range(200)]
        assert 0 <= min(waits) < bound * 0.1
        assert bound * 0.9 < max(waits) <= bound
