"""What all callers of a service share: limits, outages, refusals. A hundred callers, hours of it, no real second."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import anyio
import pytest

from agents.models.answer import Answer, CallFault, OnBegin, Quota, Quotas, Request
from agents.models.calls import Caller
from agents.models.service import LAST_WAIT_S, RetryPolicy, family
from agents.models.transcripts import Transcript
from fleet.core.base.usage import Usage
from fleet.core.facts.facts import Failure
from fleet.ports.agents import DrainingError
from tests.agents.conftest import FakeMeter
from tests.agents.timeless import TIMELESS

pytestmark = pytest.mark.anyio
PATIENCE = RetryPolicy(retries=4, backoff_first_s=1, backoff_cap_s=60, retry_after_cap_s=60, pause_s=2)
DAYS_30 = 30 * 24 * 3600.0


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, object]]:
    return TIMELESS


Faults = Callable[[float], CallFault | None]
"""The fault that a call meets at a time, counted from the start."""


def no_faults(_: float) -> None:
    """No fault."""


def overloaded(*spans: tuple[float, float]) -> Faults:
    fault = CallFault("outage", "HTTP 529 overloaded_error: Overloaded", status=529)
    return lambda at: fault if any(begin <= at < end for begin, end in spans) else None


@dataclass
class FakeService:
    """A service with a limit and faults. `named`: whether its responses name what remains of the limit."""

    faults: Faults = no_faults
    a_minute: float = 1e9
    burst: float = 50.0
    named: bool = True
    takes_s: float = 0.5
    asked_at: list[float] = field(default_factory=list)
    answered_at: list[float] = field(default_factory=list)
    _left: float = -1.0
    _at: float = 0.0
    _start: float | None = None

    @property
    def calls_a_success(self) -> float:
        return len(self.asked_at) / len(self.answered_at)

    async def ask(self, request: Request, on_begin: OnBegin) -> Answer | CallFault:
        now = anyio.current_time()
        self._start = now if self._start is None else self._start
        self.asked_at.append(now - self._start)
        await anyio.sleep(0.01)
        if (fault := self.faults(anyio.current_time() - self._start)) is not None:
            return fault
        if (limit := self._over()) is not None:
            return limit
        on_begin(self._quotas())
        await anyio.sleep(self.takes_s)
        self.answered_at.append(anyio.current_time() - self._start)
        return Answer((), "end_turn", Usage(input=10, output=10), request.model)

    def _over(self) -> CallFault | None:
        now = anyio.current_time()
        full = min(self.burst, self.a_minute)
        self._left = full if self._left < 0 else min(full, self._left + (now - self._at) * self.a_minute / 60)
        self._at = now
        if self._left < 1:
            wait = (1 - self._left) * 60 / self.a_minute
            quotas = self._quotas()
            return CallFault("limit", "HTTP 429", status=429, retry_after_s=round(wait + 0.01, 2), quotas=quotas)
        self._left -= 1
        return None

    def _quotas(self) -> Quotas:
        return {"requests": Quota(self.a_minute, int(self._left))} if self.named else {}


def caller_of(model: FakeService) -> Caller:
    return Caller(model, PATIENCE, {}, chance=Random(3))  # noqa: S311 - jitter needs no secrecy


REQUEST = Request("claude-haiku-5-5", 100, "", (), ())


async def fleet(
    model: FakeService, meter: FakeMeter, *, workers: int = 100, turns: int = 20, caller: Caller | None = None
) -> list[Failure]:
    """Work with so many workers and turns; the failures."""
    caller = caller or caller_of(model)
    failed: list[Failure] = []

    async def work() -> None:
        for turn in range(1, turns + 1):
            result = await caller.call(REQUEST, meter, Transcript(None), turn=turn)
            if isinstance(result, Failure):
                failed.append(result)
                return

    async with anyio.create_task_group() as group:
        for _ in range(workers):
            group.start_soon(work)
    return failed


def open_meter(**changes: object) -> FakeMeter:
    return FakeMeter(calls=1_000_000, answered_before=True, **changes)  # type: ignore[arg-type] # its fields


def conditions(meter: FakeMeter) -> list[tuple[str, str]]:
    return [(notice.scope, notice.condition) for notice in meter.notices]


# ---- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("named", [True, False])
async def test_a_limit_is_kept_and_nearly_used_up(named: bool) -> None:
    model = FakeService(a_minute=1200, burst=20, named=named)
    assert await fleet(model, open_meter()) == []
    assert len(model.answered_at) == 2000
    assert model.calls_a_success <= 1.2
    assert max(model.answered_at) <= 2000 / 20 / (0.9 if named else 0.75)


async def test_limits_of_one_family_do_not_hold_back_another() -> None:
    assert (family("claude-haiku-5-5"), family("claude-haiku-4-1-20260101"), family("custom")) == (
        "haiku",
        "haiku",
        "custom",
    )
    limited = CallFault("limit", "HTTP 429", retry_after_s=50)
    model = Scripted([limited, FINE, FINE])
    caller = caller_of(model)
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: caller.call(REQUEST, open_meter(), Transcript(None), turn=1))
        await anyio.sleep(1)
        began = anyio.current_time()
        opus = Request("claude-opus-5-5", 100, "", (), ())
        assert isinstance(await caller.call(opus, open_meter(), Transcript(None), turn=1), Answer)
        assert anyio.current_time() - began < 1


@dataclass
class Scripted(FakeService):
    """A service that gives these answers in turn, the last one for ever."""

    answers: Sequence[Answer | CallFault] = ()

    def __init__(self, answers: Sequence[Answer | CallFault]) -> None:
        super().__init__()
        self.answers = list(answers)

    async def ask(self, request: Request, on_begin: OnBegin) -> Answer | CallFault:
        del request
        self.asked_at.append(anyio.current_time())
        await anyio.sleep(0.01)
        result = self.answers[min(len(self.asked_at), len(self.answers)) - 1]
        if isinstance(result, Answer):
            on_begin({})
        return result


FINE = Answer((), "end_turn", Usage(output=1), "claude-haiku-5-5")


def limit(seconds: float | None) -> CallFault:
    return CallFault("limit", "HTTP 429 rate_limit_error: slow down", status=429, retry_after_s=seconds)


async def test_a_wait_that_the_service_asks_for_stops_all_and_uses_no_try() -> None:
    model = Scripted([limit(2), *[limit(2)] * 7, FINE])
    assert await fleet(model, open_meter(), workers=50, turns=1) == []
    together = [at for at in model.asked_at if at < model.asked_at[0] + 2]
    assert len(together) <= 8  # those that were under way before the first answer
    assert len(model.asked_at) == 58


@pytest.mark.parametrize("seconds", [DAYS_30, 2_303_683_200.0])
async def test_a_wait_of_weeks_is_probed_rarely_and_the_run_shows_it(seconds: float) -> None:
    meter, model = open_meter(), Scripted([limit(seconds)] * 60 + [FINE])
    caller = caller_of(model)
    with anyio.move_on_after(4 * 3600):
        assert isinstance(await caller.call(REQUEST, meter, Transcript(None), turn=1), Answer)
    assert 20 <= len(model.asked_at) <= 60
    gaps = [later - earlier for earlier, later in zip(model.asked_at, model.asked_at[1:], strict=False)]
    assert min(gaps) >= 60
    assert max(gaps) <= 600 * 1.3
    assert conditions(meter) == [("haiku", "limited")]


@pytest.mark.parametrize("seconds", [None, 0.0])
async def test_a_limit_that_names_no_time_or_none_at_all_is_not_stormed(seconds: float | None) -> None:
    meter, model = open_meter(), Scripted([limit(seconds)] * 1000 + [FINE])
    with anyio.move_on_after(600):
        await fleet(model, meter, workers=100, turns=1)
    assert len(model.asked_at) < 100
    assert conditions(meter) == [("haiku", "limited")]


async def test_a_limit_that_was_shown_is_shown_to_be_over() -> None:
    meter, model = open_meter(), Scripted([limit(45), FINE])
    await fleet(model, meter, workers=1, turns=1)
    assert conditions(meter) == [("haiku", "limited"), ("haiku", "up")]
    assert 45 <= model.asked_at[1] - model.asked_at[0] <= 45 * 1.3


# ---- outages ---------------------------------------------------------------------------------------------------------


async def test_during_an_outage_of_a_minute_one_caller_probes() -> None:
    meter, model = open_meter(), FakeService(overloaded((2, 62)))
    assert await fleet(model, meter) == []
    assert model.calls_a_success <= 1.2
    during = [at for at in model.asked_at if 4 <= at < 62]
    assert 5 <= len(during) <= 40
    assert min(model.answered_at, key=lambda at: at if at > 62 else 1e9) < 62 * 1.3
    assert conditions(meter) == [("", "down"), ("", "up")]


async def test_after_an_outage_the_fleet_comes_back_step_by_step() -> None:
    model = FakeService(overloaded((2, 62)), takes_s=0.0)
    await fleet(model, open_meter())
    back = min(at for at in model.answered_at if at > 62)
    assert len([at for at in model.asked_at if back <= at < back + 0.015]) <= 4


async def test_a_single_error_is_retried_without_a_notice() -> None:
    meter, model = open_meter(), Scripted([CallFault("outage", "HTTP 500", status=500), FINE])
    assert await fleet(model, meter, workers=1, turns=1) == []
    assert (len(model.asked_at), conditions(meter)) == (2, [])


async def test_occasional_errors_stop_no_caller() -> None:
    chance = Random(5)  # noqa: S311 - faults need no secret
    fault = CallFault("outage", "HTTP 529", status=529)
    meter, model = open_meter(), FakeService(lambda _: fault if chance.random() < 0.1 else None)
    assert await fleet(model, meter) == []
    assert model.calls_a_success <= 1.2
    assert conditions(meter) == []


async def test_a_call_that_always_fails_while_others_get_through_gives_up() -> None:
    poison = Request("claude-haiku-5-5", 666, "", (), ())
    fault = CallFault("outage", "HTTP 500", status=500)

    class Choosy(FakeService):
        async def ask(self, request: Request, on_begin: OnBegin) -> Answer | CallFault:
            return fault if request == poison else await super().ask(request, on_begin)

    model, meter = Choosy(takes_s=0.1), open_meter()
    caller = caller_of(model)
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: fleet(model, meter, workers=10, turns=2000, caller=caller))
        result = await caller.call(poison, meter, Transcript(None), turn=1)
        group.cancel_scope.cancel()
    assert isinstance(result, Failure)
    assert (result.kind, result.status) == ("transient", 500)


async def test_who_waits_stops_waiting_when_its_budget_is_spent() -> None:
    meter, model = FakeMeter(calls=1, answered_before=True), Scripted([limit(DAYS_30)])
    caller = caller_of(model)
    async with anyio.create_task_group() as group:

        async def one() -> None:
            failure = await caller.call(REQUEST, meter, Transcript(None), turn=1)
            assert isinstance(failure, Failure)
            assert failure.kind == "spent"

        group.start_soon(one)
        await anyio.sleep(100)
        meter.calls = 0


async def test_a_caller_that_leaves_during_its_probe_leaves_the_probing_to_others() -> None:
    model = FakeService(overloaded((0.5, 30)))
    caller = caller_of(model)
    for seconds in (1.0, 2.0, 4.0, 7.0):
        with anyio.move_on_after(seconds):
            await fleet(model, open_meter(), workers=5, turns=1000, caller=caller)
    assert await fleet(model, open_meter(), workers=5, turns=2, caller=caller) == []
    gauges = caller.service.gauges()
    assert (gauges.underway, gauges.waiting, gauges.shut) == (0, 0, {})


# ---- draining --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        limit(DAYS_30),
        limit(60),
        CallFault("outage", "HTTP 529", status=529),
        CallFault("refused", "HTTP 401", status=401),
    ],
    ids=lambda fault: fault.message,
)
async def test_calls_that_wait_are_not_made_any_more_once_the_run_is_drained(fault: CallFault) -> None:
    meter, model = open_meter(), Scripted([fault])
    caller = caller_of(model)
    drained_at: list[float] = []

    async def work() -> None:
        try:
            await caller.call(REQUEST, meter, Transcript(None), turn=1)
        except DrainingError:
            drained_at.append(anyio.current_time())

    async with anyio.create_task_group() as group:
        for _ in range(100):
            group.start_soon(work)
        await anyio.sleep(30)
        asked, meter.drained, began = len(model.asked_at), True, anyio.current_time()
    assert len(drained_at) == 100
    assert max(drained_at) - began <= LAST_WAIT_S + 1
    assert len(model.asked_at) - asked <= 1
    assert caller.service.gauges().waiting == caller.service.gauges().underway == 0


async def test_a_call_that_rests_before_its_next_try_is_not_made_any_more_once_the_run_is_drained() -> None:
    patience = replace(PATIENCE, retries=40, backoff_first_s=50, backoff_cap_s=60)
    meter, model = open_meter(), Scripted([CallFault("broken", "cut off")])
    caller = Caller(model, patience, {}, chance=Random(3))  # noqa: S311 - jitter needs no secrecy

    async def drain() -> None:
        await anyio.sleep(1)
        meter.drained = True

    async with anyio.create_task_group() as group:
        group.start_soon(drain)
        with pytest.raises(DrainingError):
            await caller.call(REQUEST, meter, Transcript(None), turn=1)
    assert len(model.asked_at) == 1


async def test_a_call_with_a_short_wait_is_made_while_the_run_is_drained() -> None:
    meter, model = open_meter(drained=True), FakeService(a_minute=1200, burst=20)
    assert await fleet(model, meter, workers=10, turns=10) == []
    assert len(model.answered_at) == 100


# ---- refusals --------------------------------------------------------------------------------------------------------


async def test_a_refused_key_stops_all_callers_until_a_human_answers() -> None:
    refused = CallFault("refused", "HTTP 401 authentication_error: invalid x-api-key", status=401)
    fixed = anyio.Event()
    meter, model = open_meter(), FakeService(lambda at: refused if at > 3 and not fixed.is_set() else None)
    caller = caller_of(model)
    failed: list[Failure] = []

    async def all_work() -> None:
        failed.extend(await fleet(model, meter, workers=30, turns=20, caller=caller))

    async with anyio.create_task_group() as group:
        group.start_soon(all_work)
        await anyio.sleep(300)
        assert conditions(meter) == [("", "refused")]
        assert meter.notices[0].status == 401
        asked = len(model.asked_at)
        assert len([at for at in model.asked_at if at > 4]) < 10
        meter.answers += 1  # a human answered, but nothing is better
        await anyio.sleep(5)
        assert len(model.asked_at) == asked + 1
        assert conditions(meter) == [("", "refused"), ("", "refused")]
        fixed.set()
        meter.answers += 1
        began = anyio.current_time()
    assert anyio.current_time() - began < 30
    assert failed == []
    assert len(model.answered_at) == 600
    assert conditions(meter)[-1] == ("", "up")


async def test_the_gauges_count_calls_faults_and_waiting_callers() -> None:
    model = FakeService(a_minute=600, burst=10)
    caller = caller_of(model)
    await fleet(model, open_meter(), workers=5, turns=3, caller=caller)
    gauges = caller.service.gauges()
    assert (gauges.calls, gauges.answers, gauges.underway, gauges.waiting) == (len(model.asked_at), 15, 0, 0)
    (granted,) = gauges.granted
    assert (granted.family, granted.counted, granted.limit_a_minute) == ("haiku", "requests", 600)
    assert 0 <= granted.left <= 10
