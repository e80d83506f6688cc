"""How often one call is tried, what its failure is called, and what is reported. The clock is simulated."""

from dataclasses import dataclass, field

import anyio
import pytest

from agents.models.answer import Answer, CallFault, OnBegin, Request
from agents.models.calls import Caller, backoff_s
from agents.models.service import RetryPolicy
from agents.models.transcripts import Transcript
from fleet.core.base.usage import Usage
from fleet.core.facts.facts import Failure
from tests.agents.conftest import SEEDED, FakeMeter
from tests.agents.timeless import TIMELESS

pytestmark = pytest.mark.anyio
PATIENCE = RetryPolicy(retries=4, backoff_first_s=1, backoff_cap_s=8, retry_after_cap_s=120, pause_s=5)
HAIKU, SONNET = "claude-haiku-5-5", "claude-sonnet-5-5"
REQUEST = Request(HAIKU, 100, "", (), ())
FINE = Answer((), "end_turn", Usage(output=1), HAIKU)
BROKEN = CallFault("broken", "broken", usage=Usage(input=7))


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return TIMELESS


@dataclass
class Replies:
    """A model that says these things in turn, the last one again and again."""

    results: list[Answer | CallFault]
    asked: list[Request] = field(default_factory=list)
    asked_at: list[float] = field(default_factory=list)

    async def ask(self, request: Request, on_begin: OnBegin) -> Answer | CallFault:
        del on_begin
        self.asked.append(request)
        self.asked_at.append(anyio.current_time())
        return self.results.pop(0) if len(self.results) > 1 else self.results[0]


def caller_for(replies: Replies, **fallbacks: str) -> Caller:
    named = {name.replace("_", "-"): other for name, other in fallbacks.items()}
    return Caller(replies, PATIENCE, {}, chance=SEEDED, fallbacks=named)


async def call(
    replies: Replies, meter: FakeMeter | None = None, *, turn: int = 1, **fallbacks: str
) -> Answer | Failure:
    return await caller_for(replies, **fallbacks).call(REQUEST, meter or FakeMeter(), Transcript(None), turn=turn)


async def test_a_broken_call_is_tried_again_and_what_it_used_is_reported() -> None:
    meter = FakeMeter()
    assert await call(Replies([BROKEN, FINE]), meter) == FINE
    assert [use.usage for use in meter.uses] == [Usage(input=7), Usage(output=1)]


async def test_after_so_many_tries_it_is_a_failure() -> None:
    replies = Replies([BROKEN])
    failure = await call(replies)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.summary) == ("transient", "broken")
    assert len(replies.asked_at) == 4


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("configuration", "configuration"),
        ("gone", "configuration"),
        ("refused", "configuration"),
        ("too_long", "too_complex"),
        ("other", "other"),
    ],
)
async def test_a_fault_that_waiting_does_not_fix_is_not_retried(fault: str, kind: str) -> None:
    replies = Replies([CallFault(fault, "no", status=499)])  # type: ignore[arg-type] # the table above holds only kinds
    failure = await call(replies, FakeMeter())
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.status) == (kind, 499)
    assert len(replies.asked) == 1


async def test_no_call_without_a_budget() -> None:
    replies = Replies([FINE])
    failure = await call(replies, FakeMeter(calls=0))
    assert isinstance(failure, Failure)
    assert failure.kind == "spent"
    assert replies.asked == []


async def test_what_the_service_refuses_for_good_is_a_warning_of_the_run() -> None:
    meter, refused = FakeMeter(), ["effort"]

    def take() -> list[str]:
        return [refused.pop()] if refused else []

    caller = Caller(Replies([BROKEN, FINE]), PATIENCE, {}, chance=SEEDED, take_warnings=take)
    assert await caller.call(REQUEST, meter, Transcript(None), turn=1) == FINE
    assert meter.warnings == ["effort"]


async def test_a_service_that_never_answered_is_not_waited_for() -> None:
    meter, replies = FakeMeter(), Replies([CallFault("outage", "no one answers")])
    failure = await call(replies, meter)
    assert isinstance(failure, Failure)
    assert (failure.kind, len(replies.asked)) == ("transient", 4)


# ---- models that are gone --------------------------------------------------------------------------------------------

GONE = CallFault("gone", "HTTP 404 not_found_error: model", status=404)


async def test_another_model_takes_the_place_of_one_that_is_gone() -> None:
    replies = Replies([GONE, FINE])
    caller = caller_for(replies, claude_haiku_5_5=SONNET)
    assert await caller.call(REQUEST, FakeMeter(), Transcript(None), turn=1) == FINE
    assert [request.model for request in replies.asked] == [HAIKU, SONNET]
    assert caller.available(HAIKU) == SONNET


async def test_a_conversation_does_not_change_its_model_in_the_middle() -> None:
    failure = await call(Replies([GONE, FINE]), turn=2, claude_haiku_5_5=SONNET)
    assert isinstance(failure, Failure)
    assert failure.kind == "transient"
    assert f"the next attempt uses {SONNET}" in failure.summary


async def test_stand_ins_that_are_all_gone_are_a_matter_of_configuration() -> None:
    replies = Replies([GONE])
    failure = await call(replies, claude_haiku_5_5=SONNET, claude_sonnet_5_5=HAIKU)
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.status) == ("configuration", 404)
    assert len(replies.asked) <= 3


def test_backoff_is_jittered_grows_and_is_bounded() -> None:
    for failures, bound in ((1, 1), (2, 2), (3, 4), (4, 8), (50, 8), (5000, 8)):
        waits = [backoff_s(failures, PATIENCE, SEEDED) for _ in range(200)]
        assert 0 <= min(waits) < bound * 0.1
        assert bound * 0.9 < max(waits) <= bound
