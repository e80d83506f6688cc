"""Calls of a conversation on a node, both ends put together: what arrives, what is refused, whose clock runs."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from agents.models.answer import Answer, Request, ToolCall
from agents.models.prices import ModelLimits
from agents.remote import (
    LONGEST_TRANSCRIPT,
    MOST_LIMITS,
    ConversationCalls,
    LineCalls,
    NoCalls,
    Outcome,
    dump,
    dump_request,
    load_asked,
)
from fleet.core.base.usage import Usage
from fleet.core.facts.facts import Failure
from fleet.ports.agents import CallRefusedError, DrainingError
from fleet.ports.worktrees import EffectError

LIMITS = ModelLimits(context_tokens=1000, output_tokens=100, cache_minimum_tokens=10)
REQUEST = Request(
    "opus",
    100,
    "You code.",
    ({"name": "bash", "type": "bash_20250124"},),
    ({"role": "user", "content": [{"type": "text", "text": "begin"}]},),
    1,
    effort="high",
)
ANSWER = Answer(
    ({"type": "text", "text": "half a \ud83d character"},),
    "tool_use",
    Usage(input=3, output=2),
    "opus",
    calls=(ToolCall("1", "bash", {"command": "ls"}),),
)
NONE: Any = None


@dataclass
class PaperCaller:
    """Satisfies what is asked of a `Caller`."""

    results: list[Answer | Failure | Exception] = field(default_factory=lambda: [ANSWER])
    instead: dict[str, str] = field(default_factory=dict)
    asked: list[Request] = field(default_factory=list)
    hangs: bool = False
    stopped: int = 0

    def available(self, model: str) -> str:
        return self.instead.get(model, model)

    async def limits(self, model: str) -> ModelLimits:
        return LIMITS if model == "opus" else LIMITS.model_copy(update={"context_tokens": 500})

    def touches(self, model: str) -> int:
        del model
        return 1

    async def call(self, request: Request, *_: object, turn: int, clock: object) -> Answer | Failure:
        del turn, clock
        self.asked.append(request)
        if self.hangs:
            try:
                await anyio.sleep_forever()
            finally:
                self.stopped += 1
        result = self.results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    async def keep_warm(self, *_: object, turn: int) -> bool:
        del turn
        return True


@dataclass
class PaperReply:
    """Satisfies `Reply`."""

    parts: list[bytes] = field(default_factory=list)
    dropped: anyio.Event = field(default_factory=anyio.Event)

    @property
    def is_dropped(self) -> bool:
        return self.dropped.is_set()

    async def send(self, part: bytes) -> None:
        self.parts.append(part)

    async def wait_dropped(self) -> None:
        await self.dropped.wait()


@dataclass
class PaperLine:
    """Satisfies `CallLine`: straight to the manager's end, or to a manager that sends this."""

    calls: ConversationCalls
    says: bytes | None = None

    @asynccontextmanager
    async def call(self, request: bytes) -> AsyncIterator[AsyncIterator[bytes]]:
        reply = PaperReply()
        if self.says is None:
            await self.calls.answer(request, reply)
        yield _parts([self.says] if self.says is not None else reply.parts)


async def _parts(parts: Sequence[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def manager(caller: PaperCaller, *, turns: int = 3) -> ConversationCalls:
    settings = SimpleNamespace(turns=turns, time_s=60.0)
    common = SimpleNamespace(models=SimpleNamespace(max_tokens=100))
    kept = bytearray()
    calls = ConversationCalls("opus", "high", *cast("Any", (settings, common, caller, NONE, SimpleNamespace())))
    calls.transcript = cast("Any", SimpleNamespace(append=kept.extend, kept=kept))
    return calls


def ends(caller: PaperCaller) -> LineCalls:
    return LineCalls(cast("Any", PaperLine(manager(caller))))


async def test_an_answer_arrives_as_it_was_given_also_with_half_a_character() -> None:
    caller = PaperCaller()
    answer = await ends(caller).call(REQUEST, NONE, NONE, turn=1)
    assert answer == ANSWER
    [asked] = caller.asked
    assert (asked.model, asked.system, asked.messages, asked.effort, asked.tools) == (
        "opus",
        REQUEST.system,
        REQUEST.messages,
        "high",
        REQUEST.tools,
    )


async def test_a_failure_and_a_draining_run_arrive_as_what_they_are() -> None:
    failure = Failure(kind="spent", summary="the budget does not cover it")
    calls = ends(PaperCaller([failure, DrainingError()]))
    assert await calls.call(REQUEST, NONE, NONE, turn=1) == failure
    with pytest.raises(DrainingError):
        await calls.call(REQUEST, NONE, NONE, turn=2)
    assert cast("PaperLine", calls.line).calls.drained


async def test_limits_are_asked_once_and_a_model_that_is_out_is_replaced() -> None:
    caller = PaperCaller(instead={"opus": "sonnet"})
    calls = ends(caller)
    for model in ("opus", "opus", "sonnet"):
        assert (await calls.limits(model)).context_tokens == 500
    assert (calls.touches("opus"), calls.touches("other")) == (1, 0)
    assert cast("PaperLine", calls.line).calls._limits == 1
    assert await calls.keep_warm(replace(REQUEST, model="sonnet"), NONE, NONE, turn=1)


async def test_a_conversation_whose_time_is_over_ends_and_what_is_left_of_it_comes_from_the_manager() -> None:
    caller = PaperCaller()
    with anyio.move_on_after(1_000) as clock:
        await ends(caller).call(REQUEST, NONE, NONE, turn=1, clock=clock)
    assert clock.deadline <= anyio.current_time() + 60, "the manager's limit"
    over = PaperLine(manager(caller), dump(Outcome()))
    with anyio.move_on_after(1_000) as clock:
        await LineCalls(cast("Any", over)).call(REQUEST, NONE, NONE, turn=2, clock=clock)
    assert clock.cancelled_caught


@pytest.mark.parametrize("says", [b"", b"noise", b'{"answer": {"blocks": 1}, "left_s": 1}', b'{"more": 1}'])
async def test_what_a_manager_can_not_mean_is_a_failure_of_the_machine(says: bytes) -> None:
    line = PaperLine(manager(PaperCaller()), says)
    with pytest.raises(EffectError) as raised:
        await LineCalls(cast("Any", line)).call(REQUEST, NONE, NONE, turn=1)
    assert raised.value.failure.kind == "infrastructure"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"model": "haiku"}, "asks for the model 'haiku'"),
        ({"effort": "max"}, "asks for the effort 'max'"),
        ({"max_tokens": 101}, "an answer of 101 tokens"),
        ({"tools": ({"type": "web_search_20250305", "name": "w"},)}, "a tool that the service runs"),
    ],
)
async def test_what_its_order_does_not_have_is_refused_before_it_costs_anything(
    changed: dict[str, Any], why: str
) -> None:
    caller = PaperCaller()
    with pytest.raises(CallRefusedError, match=why):
        await ends(caller).call(replace(REQUEST, **changed), NONE, NONE, turn=1)
    assert caller.asked == []


async def test_no_more_calls_and_limits_are_given_than_an_honest_conversation_asks_for() -> None:
    turns = 3
    caller = PaperCaller([ANSWER] * 9)
    calls, request = manager(caller, turns=turns), dump_request(REQUEST, turn=1, left_s=1.0, warm=False)
    for _ in range(turns):
        await calls.answer(request, PaperReply())
    with pytest.raises(CallRefusedError, match="more often than in 3 turns"):
        await calls.answer(request, PaperReply())
    for _ in range(MOST_LIMITS):
        await calls.answer(b'{"limits_of": "opus"}', PaperReply())
    with pytest.raises(CallRefusedError, match="17 times"):
        await calls.answer(b'{"limits_of": "opus"}', PaperReply())
    with pytest.raises(CallRefusedError, match="its order is a conversation"):
        await calls.answer(b'{"method": "GET", "target": "/", "headers": {}, "body": ""}', PaperReply())
    with pytest.raises(CallRefusedError, match="its order is a program"):
        await NoCalls().answer(request, PaperReply())


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "system", "content": [{"type": "text"}]}]}, "role"),
        ({"messages": [{"role": "user", "content": ["text"]}]}, "not made of blocks"),
        ({"shared": 2}, "can't begin like this"),
        ({"left_s": float("inf")}, "left_s"),
        ({"turn": 0}, "turn"),
        ({"more": 1}, "more"),
    ],
)
def test_a_request_of_another_shape_is_refused(changed: dict[str, Any], why: str) -> None:
    document = {**json.loads(dump_request(REQUEST, turn=1, left_s=1.0, warm=False)), **changed}
    with pytest.raises(CallRefusedError, match=why):
        load_asked(json.dumps(document).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"[" * 100_000])
def test_what_is_no_request_is_refused(data: bytes) -> None:
    with pytest.raises(CallRefusedError):
        load_asked(data)


async def test_a_call_that_the_node_drops_is_stopped() -> None:
    caller, reply = PaperCaller(hangs=True), PaperReply()
    async with anyio.create_task_group() as tasks:
        request = dump_request(REQUEST, turn=1, left_s=1_000.0, warm=False)
        tasks.start_soon(manager(caller).answer, request, reply)
        with anyio.fail_after(10):
            while not caller.asked:
                await anyio.lowlevel.checkpoint()
            reply.dropped.set()
            while not caller.stopped:
                await anyio.lowlevel.checkpoint()
    assert caller.stopped == 1


def test_a_transcript_is_kept_up_to_its_limit() -> None:
    calls = manager(PaperCaller())
    calls._kept = LONGEST_TRANSCRIPT - 3
    for part in (b"abc", b"d"):
        calls.keep(part)
    assert bytes(cast("Any", calls.transcript).kept) == b"abc"
