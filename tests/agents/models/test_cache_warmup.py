"""A prefix that many share is written once, and nobody waits for ever for it."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import anyio
import pytest

from agents.models import warming
from agents.models.answer import Answer, CallFault, Request
from agents.models.caching import explained, left_by
from agents.models.warming import Warmed
from fleet.core.usage import Usage

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

    async def ask(self, asked: Request) -> Answer | CallFault:
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
        asked.begun({})
        await anyio.sleep(0.02)
        return FINE


async def all_at_once(model: Warmed, make: Callable[[int], Request], number: int = 100) -> None:
    with anyio.fail_after(20):
        async with anyio.create_task_group() as callers:
            for caller in range(number):
                callers.start_soon(model.ask, make(caller))


async def test_of_a_hundred_at_once_one_writes_the_prefix_and_the_others_follow() -> None:
    service = Service()
    await all_at_once(Warmed(service), lambda number: request(f"task {number}"))
    assert (service.asked, service.cold) == (100, 1)


async def test_whoever_goes_ahead_and_fails_is_followed_by_one_other() -> None:
    service = Service(fails=2)
    await all_at_once(Warmed(service), lambda number: request(f"task {number}"), 10)
    assert (service.asked, service.cold) == (10, 3)


async def test_a_silent_first_call_holds_nobody_up_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warming, "PATIENCE_S", 0.01)
    service = Service(silent=True)
    with anyio.move_on_after(5):
        async with anyio.create_task_group() as callers:
            model = Warmed(service)
            for _ in range(3):
                callers.start_soon(model.ask, request())
            await service.crowded.wait()
            callers.cancel_scope.cancel()
    assert service.asked == 3


async def test_later_turns_short_prefixes_and_other_prefixes_wait_for_nobody() -> None:
    for make in (
        lambda _: replace(request(), messages=(*request().messages, {"role": "assistant", "content": []})),
        lambda _: request(system="short"),
        lambda number: request(system=f"{number}{PROMPT}"),
    ):
        service = Service()
        await all_at_once(Warmed(service), make, 5)
        assert service.cold == 5


async def test_shared_blocks_of_the_first_message_are_a_part_of_the_prefix() -> None:
    service = Service()
    model = Warmed(service)
    await all_at_once(model, lambda number: request(PROMPT, f"{number}", system="short", shared=1), 5)
    assert service.cold == 1
    service.warm = False
    await all_at_once(model, lambda number: request(f"other {PROMPT}", f"{number}", system="short", shared=1), 5)
    assert service.cold == 2


async def test_a_prefix_that_nobody_used_for_long_is_warmed_again() -> None:
    now = 0.0
    service = Service()
    model = Warmed(service, now=lambda: now)
    await all_at_once(model, lambda _: request(), 3)
    now, service.warm = 400.0, False
    await all_at_once(model, lambda _: request(), 3)
    assert service.cold == 2


@pytest.mark.parametrize(
    ("usage", "model", "later", "changed", "why"),
    [
        (Usage(input=10, cache_read=5_000), "m", 1, "", None),
        (Usage(input=5_000), "m", 400, "", "expired: 400 s"),
        (Usage(input=5_000), "n", 1, "", "another model"),
        (Usage(input=5_000), "m", 1, "we made it shorter", "we made it shorter"),
        (Usage(input=5_000), "m", 1, "", "did not find it"),
    ],
)
def test_a_miss_is_explained(usage: Usage, model: str, later: float, changed: str, why: str | None) -> None:
    said = explained(usage, model, left_by(FINE, "m", 0.0), later, changed=changed)
    assert (said is None) if why is None else (said is not None and why in said)


def test_a_first_call_says_whether_it_wrote_read_or_was_too_short() -> None:
    assert explained(Usage(input=10, cache_read=5_000), "m", None, 0) is None
    assert explained(Usage(input=10, cache_write=5_000), "m", None, 0) == "the first call with this prefix wrote it"
    assert "of 4096" in (explained(Usage(input=10), "claude-haiku-5-5", None, 0) or "")
