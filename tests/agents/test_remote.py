"""Requests of a node, as its manager takes them, and the answers of a manager, as a node takes them."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast, get_args

import pytest

from agents.models.answer import Request, parameters_of
from agents.models.calls import Caller
from agents.models.service import RetryPolicy
from agents.remote import (
    HEADERS,
    LONGEST_HEAD,
    LONGEST_TRANSCRIPT,
    MODELS,
    MOST_NOTES,
    ConversationRules,
    LineRelay,
    NoCalls,
    RelayCalls,
    RelayedCalls,
    dump_request,
    load_request,
)
from agents.workers.relay import CALL, AgentRelay, RelayReply, RelayRequest
from fleet.core.base.usage import Capability
from fleet.ports.agents import CallRefusedError
from fleet.ports.worktrees import EffectError
from tests.agents.conftest import Script, caller_for, settings_for

pytestmark = pytest.mark.anyio
MODEL = "claude-haiku-5-5"
REQUEST = Request(
    MODEL,
    100,
    "You code.",
    ({"name": "bash", "type": "bash_20250124"},),
    ({"role": "user", "content": [{"type": "text", "text": "half a \ud83d character"}]},),
    1,
    effort="high",
)
BODY = parameters_of(REQUEST, frozenset()) | {"stream": True}


def sent(document: object = BODY, **changes: Any) -> RelayRequest:
    return replace(RelayRequest("POST", CALL, HEADERS, json.dumps(document).encode()), **changes)


@pytest.fixture
def caller(tmp_path: Path) -> Caller:
    return caller_for(settings_for(Script(), tmp_path))


@pytest.fixture
def rules(caller: Caller) -> ConversationRules:
    return ConversationRules(MODEL, "high", 100, 3, caller)


@dataclass
class Answering:
    """Satisfies `AgentRelay`: answers everything."""

    handled: list[RelayRequest] = field(default_factory=list)
    refused: None = None
    failure: None = None
    drained: bool = False

    async def handle(self, request: RelayRequest, reply: RelayReply) -> None:
        self.handled.append(request)
        await reply.begin(200, {})
        for part in (b"an ", b"answer"):
            await reply.write(part)
        await reply.finish()

    def close(self) -> None:
        pass


@dataclass
class PaperReply:
    """Satisfies `Reply`."""

    parts: list[bytes] = field(default_factory=list)
    is_dropped: bool = False

    async def send(self, part: bytes) -> None:
        self.parts.append(part)


def manager(rules: ConversationRules | None, relay: AgentRelay) -> RelayCalls:
    kept = bytearray()
    return RelayCalls(relay, cast("Any", SimpleNamespace(append=kept.extend, kept=kept)), rules)


@dataclass
class PaperLine:
    """Satisfies `CallLine` with a manager that says this."""

    says: Sequence[bytes]

    @asynccontextmanager
    async def call(self, request: bytes) -> AsyncIterator[AsyncIterator[bytes]]:
        del request
        yield _parts(self.says)


async def _parts(parts: Sequence[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def test_a_request_arrives_as_it_was_sent_also_with_half_a_character() -> None:
    request = sent(target="/v1/messages?beta=true")
    assert load_request(dump_request(request)) == request
    assert json.loads(load_request(dump_request(request)).body)["messages"] == BODY["messages"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no line",
        b"[]\n",
        b"\xff\n",
        b"[" * 100_000 + b"\n",
        b'{"method": "GET"}\n',
        b" " * LONGEST_HEAD + b"{}\n",
    ],
)
def test_what_is_no_request_is_refused(data: bytes) -> None:
    with pytest.raises(CallRefusedError):
        load_request(data)


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "POST /x"},
        {"target": "v1"},
        {"target": "/v1/messages?\x00"},
        {"headers": {"user-agent": "a\r\nb: c"}},
    ],
)
def test_a_head_that_no_client_would_send_is_refused(changes: dict[str, Any]) -> None:
    request = sent(**changes)
    head = {"method": request.method, "target": request.target, "headers": dict(request.headers)}
    with pytest.raises(CallRefusedError, match="request is invalid"):
        load_request(json.dumps(head).encode() + b"\n")


def test_what_a_conversation_of_ours_asks_is_allowed(rules: ConversationRules) -> None:
    assert rules.check(sent()) == 1


async def test_what_it_was_told_stays_allowed_when_the_service_changes(caller: Caller) -> None:
    caller.fallbacks = {MODEL: "claude-other-1", "claude-other-1": "claude-other-2"}
    rules = ConversationRules(MODEL, "high", 100, 3, caller)
    caller.lost(MODEL)
    assert (await rules.notes(MODEL)).id == "claude-other-1"
    caller.lost("claude-other-1")
    assert rules.check(sent(BODY | {"model": "claude-other-1"})) == 1
    with pytest.raises(CallRefusedError, match="requested the model 'claude-other-2'"):
        rules.check(sent(BODY | {"model": "claude-other-2"}))


async def test_a_prompt_is_kept_in_the_cache_as_often_as_it_was_told(caller: Caller, rules: ConversationRules) -> None:
    touches = (await rules.notes(MODEL)).touches
    caller.lacks = lambda _model, capability: capability == "keep_alive"
    assert (await rules.notes(MODEL)).touches == 0
    warms = sent(BODY | {"max_tokens": 0})
    assert [rules.check(warms) for _ in range(3 * touches)] == [0] * 3 * touches
    with pytest.raises(CallRefusedError, match="more than 3 calls"):
        rules.check(warms)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"target": "/v1/messages?beta=true"}, "requested POST /v1/messages\\?beta"),
        ({"target": "/v1/files"}, "requested POST /v1/files"),
        ({"method": "PUT"}, "requested PUT"),
        ({"headers": {**HEADERS, "anthropic-beta": "fast-mode"}}, "requested POST"),
        ({"body": b"noise"}, "not JSON"),
        ({"body": b"[]"}, "request is invalid"),
    ],
)
def test_a_conversation_has_one_way_to_ask(rules: ConversationRules, changes: dict[str, Any], why: str) -> None:
    with pytest.raises(CallRefusedError, match=why):
        rules.check(sent(**changes))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "system", "content": [{"type": "text"}]}]}, "role"),
        ({"messages": [{"role": "user", "content": ["text"]}]}, "not a list of blocks"),
        ({"system": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "system"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"service_tier": "priority"}, "service_tier"),
        ({"thinking": {"type": "enabled"}}, "a kind of thinking that its order does not allow"),
        ({"output_config": None}, "requested the effort None"),
        ({"model": "x" * 201}, "model"),
        ({"tools": [{"type": ["web_search"]}]}, "a tool that runs on the service"),
        ({"\ud800\x1b": 1}, "request is invalid at '"),
    ],
)
def test_a_body_of_another_shape_is_refused(rules: ConversationRules, changed: dict[str, Any], why: str) -> None:
    with pytest.raises(CallRefusedError, match=why):
        rules.check(sent(BODY | changed))


async def test_no_more_is_asked_about_a_model_than_an_honest_conversation_asks(rules: ConversationRules) -> None:
    calls, relay = manager(rules, Answering()), Answering()
    question = dump_request(RelayRequest("GET", f"{MODELS}{MODEL}", {}, b""))
    for _ in range(MOST_NOTES):
        await calls.answer(question, PaperReply())
    with pytest.raises(CallRefusedError, match="more than 200 times"):
        await calls.answer(question, PaperReply())
    with pytest.raises(CallRefusedError, match="requested the model 'haiku'"):
        await manager(rules, relay).answer(dump_request(RelayRequest("GET", f"{MODELS}haiku", {}, b"")), PaperReply())
    assert relay.handled == []


async def test_more_calls_than_turns_or_tries_are_refused(caller: Caller, rules: ConversationRules) -> None:
    calls = manager(rules, Answering())
    for _ in range(3):
        await calls.answer(dump_request(sent()), PaperReply())
    with pytest.raises(CallRefusedError, match="more than 3 calls"):
        await calls.answer(dump_request(sent()), PaperReply())
    unanswered = ConversationRules(MODEL, "high", 100, 3, caller)
    tries = 3 * caller.policy.retries + len(get_args(Capability))
    assert [unanswered.check(sent()) for _ in range(tries)] == [1] * tries
    with pytest.raises(CallRefusedError, match="more than 3 calls"):
        unanswered.check(sent())


async def test_the_answer_to_a_conversation_of_ours_travels_in_one_part(rules: ConversationRules) -> None:
    reply = PaperReply()
    await manager(rules, Answering()).answer(dump_request(sent()), reply)
    assert reply.parts[1:-1] == [b"=an answer"]


async def test_an_agent_of_others_is_answered_whatever_it_asks() -> None:
    relay, reply = Answering(), PaperReply()
    await manager(None, relay).answer(dump_request(sent({"model": "x"}, target="/v1/files")), reply)
    assert [request.target for request in relay.handled] == ["/v1/files"]
    assert reply.parts[1:-1] == [b"=an ", b"=answer"]
    with pytest.raises(CallRefusedError, match="its order is a program"):
        await NoCalls().answer(b"", reply)


@pytest.mark.parametrize("says", [[], [b"noise"], [b'{"status": 200, "headers": {}}'], [b'{"more": 1}'], [b"=body"]])
async def test_what_a_manager_can_not_mean_is_a_failure_of_the_machine(says: list[bytes]) -> None:
    calls = RelayedCalls(LineRelay(cast("Any", PaperLine(says))), RetryPolicy(3, 0.001, 60))
    with pytest.raises(EffectError) as raised:
        await calls.limits(MODEL)
    assert raised.value.failure.kind == "infrastructure"


def test_a_transcript_is_kept_up_to_its_limit() -> None:
    calls = manager(None, Answering())
    calls._kept = LONGEST_TRANSCRIPT - 3
    for part in (b"abc", b"d"):
        calls.keep(part)
    assert bytes(cast("Any", calls.transcript).kept) == b"abc"
