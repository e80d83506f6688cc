"""Fault windows, in which calls fail for every caller, and rate limits."""

from datetime import UTC, datetime

import anthropic
import pytest

from agents.simulated.admission import FaultSchedule, Limiter
from agents.simulated.script import FaultWindow, ServiceLimits
from tests.agents.simulated.conftest import WORKER_TOOLS, Connect, worker_messages

CLAIM = {"workers": {"*": {"attempts": [{"do": "claim"}]}}}


def test_a_spell_begins_and_ends_by_the_first_call_and_hits_its_share() -> None:
    weather = FaultSchedule(
        [FaultWindow(from_s=1, to_s=2), FaultWindow(from_s=5, to_s=15, share=0.3, status=500)], seed=1
    )
    struck = [weather.fault_at(100 + at / 100) for at in range(2000)]
    assert not any(struck[:100])
    assert all(struck[100:200])
    assert not any(struck[200:500])
    assert 250 < sum(spell is not None for spell in struck[500:1500]) < 350
    assert not any(struck[1500:])


async def test_a_call_in_a_spell_is_answered_with_it(connect: Connect) -> None:
    spell = {"to_s": 60, "status": 529, "retry_after": 3}
    async with connect(CLAIM | {"weather": [spell]}) as client:
        with pytest.raises(anthropic.APIStatusError) as caught:
            await client.ask(worker_messages(), WORKER_TOOLS)
    assert (caught.value.status_code, caught.value.response.headers["retry-after"]) == (529, "3")


def test_a_burst_is_bounded_and_headers_may_say_nothing() -> None:
    gauge = Limiter(ServiceLimits(requests_per_minute=600, burst_s=1, named=False), now=0.0)
    assert [gauge.admit(0.0, 1) is None for _ in range(12)] == [True] * 10 + [False] * 2
    assert gauge.admit(1.0, 1) is None
    assert gauge.headers(datetime.now(UTC)) == {}


def test_a_window_of_calls_needs_no_clock() -> None:
    weather = FaultSchedule([FaultWindow(first_call=2, last_call=3)], seed=1)
    assert [weather.fault_at(float(now)) is not None for now in range(5)] == [False, True, True, False, False]
