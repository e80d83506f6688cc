"""A prefix that many conversations share is written once, and no one waits for it for ever."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import anyio
import pytest

from agents.models.answer import Answer, CallFault, OnBegin, Request, parameters_of
from agents.models.cache_warmup import CacheWarmup
from fleet.core.base.usage import Usage
from tests.agents.conftest import ignore

pytestmark = pytest.mark.anyio
PROMPT = "You are a worker. " * 2_000
FINE = Answer((), "end_turn", Usage(input=10, cache_write=5_000), "m")


def request(*texts: str, system: str = PROMPT, shared: int = 0) -> Request:
    message = {"role": "user", "content": [{"type": "text", "text": text} for text in texts or ("task",)]}
    return Request("m", 100, system, (), (message,), shared)


@dataclass
class Service:
    """Counts who asked before the first answer to it had begun."""

    fails: int = 0
    silent: bool = False
    asked: int = 0
    cold: int = 0
    warm: bool = False
    crowded: anyio.Event = field(default_factory=anyio.Event)
    seen: list[Request] = field(default_factory=list)

    async def ask(self, asked: Request, on_begin: OnBegin) -> Answer | CallFault:
        self.asked += 1
        self.seen.append(asked)
        if self.asked == 3:
            self.crowded.set()
        self.cold += not self.warm
        await anyio.sleep(0.01)
        if self.silent:
            await anyio.sleep_forever()
        if self.fails:
            self.fails -= 1
            return CallFault("outage", "overloaded")
        self.warm = True
        on_begin({})
        await anyio.sleep(0.02)
        return FINE


async def all_at_once(model: CacheWarmup, make: Callable[[int], Request], number: int = 100) -> None:
    with anyio.fail_after(20):
        async with anyio.create_task_group() as callers:
            for caller in range(number):
                callers.start_soon(model.ask, make(caller), ignore)


async def test_one_of_a_hundred_callers_writes_the_prefix_and_the_others_follow() -> None:
    service = Service()
    await all_at_once(CacheWarmup(service), lambda number: request(f"task {number}"))
    assert (service.asked, service.cold) == (100, 1)


async def test_a_leader_that_fails_is_replaced_by_one_other() -> None:
    service = Service(fails=2)
    await all_at_once(CacheWarmup(service), lambda number: request(f"task {number}"), 10)
    assert (service.asked, service.cold) == (10, 3)


async def test_a_silent_leader_delays_its_followers_only_briefly() -> None:
    service = Service(silent=True)
    with anyio.move_on_after(5):
        async with anyio.create_task_group() as callers:
            model = CacheWarmup(service, patience_s=0.01)
            for _ in range(3):
                callers.start_soon(model.ask, request(), ignore)
            await service.crowded.wait()
            callers.cancel_scope.cancel()
    assert service.asked == 3


async def test_another_effort_has_another_prefix() -> None:
    service = Service()
    low, high = replace(request(), effort="low"), replace(request(), effort="high")
    await all_at_once(CacheWarmup(service), lambda number: low if number % 2 else high, number=10)
    assert (service.asked, service.cold) == (10, 2)


async def test_later_turns_short_prefixes_and_other_prefixes_do_not_wait() -> None:
    for make in (
        lambda _: replace(request(), messages=(*request().messages, {"role": "assistant", "content": []})),
        lambda _: request(system="short"),
        lambda number: request(system=f"{number}{PROMPT}"),
    ):
        service = Service()
        await all_at_once(CacheWarmup(service), make, 5)
        assert service.cold == 5


async def test_shared_blocks_of_the_first_message_are_a_part_of_the_prefix() -> None:
    service = Service()
    model = CacheWarmup(service)
    await all_at_once(model, lambda number: request(PROMPT, f"{number}", system="short", shared=1), 5)
    assert service.cold == 1
    service.warm = False
    await all_at_once(model, lambda number: request(f"other {PROMPT}", f"{number}", system="short", shared=1), 5)
    assert service.cold == 2


async def test_conversations_here_and_forwarded_ones_follow_one_leader() -> None:
    service = Service()
    model = CacheWarmup(service)

    async def forward(asked: Request) -> None:
        async with model.forwarding(parameters_of(asked, frozenset()), ignore) as begun:
            await service.ask(asked, begun)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as callers:
            for number in range(6):
                asked = replace(request(PROMPT, f"{number}", system="short", shared=1), effort="low")
                callers.start_soon(forward, asked)
                callers.start_soon(model.ask, asked, ignore)
    assert (service.asked, service.cold) == (12, 1)


@pytest.mark.parametrize("later", [True, False])
async def test_forwarded_calls_that_share_nothing_do_not_wait(*, later: bool) -> None:
    model, service = CacheWarmup(Service()), Service()

    async def forward(number: int) -> None:
        asked = request(PROMPT, f"{number}", system="short" if later else f"{number}", shared=int(not later))
        if later:
            asked = replace(asked, messages=(*asked.messages, {"role": "assistant", "content": []}, *asked.messages))
        async with model.forwarding(parameters_of(asked, frozenset()), ignore) as begun:
            await service.ask(asked, begun)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as callers:
            for number in range(5):
                callers.start_soon(forward, number)
    assert service.cold == 5


async def test_an_unused_prefix_is_warmed_again() -> None:
    now = 0.0
    service = Service()
    model = CacheWarmup(service, now=lambda: now)
    await all_at_once(model, lambda _: request(), 3)
    now, service.warm = 400.0, False
    await all_at_once(model, lambda _: request(), 3)
    assert service.cold == 2


async def test_first_messages_of_workers_are_written_to_their_end_and_those_of_planners_if_that_pays() -> None:
    """A hundred that begin at once have not continued yet, and will."""
    for recurs, ends in ((False, {True}), (True, {True, False})):
        service = Service()
        model = CacheWarmup(service, {})
        worker = replace(request(), model="claude-haiku-5-5", recurs=recurs)
        await all_at_once(model, lambda _, worker=worker: worker)  # type: ignore[misc]
        assert {asked.ends_in_cache for asked in service.seen} == ends
