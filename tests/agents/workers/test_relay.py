"""The way out of the box: what it forwards, what it counts, and what it never hands over."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest
from aiohttp import web

from agents.conversation.guards import AttemptBudget
from agents.models.cache_warmup import CacheWarmup
from agents.models.calls import Caller
from agents.models.client import open_client
from agents.models.transcripts import Transcripts
from agents.workers.relay import Relay
from agents.workers.relay_server import listening
from fleet.ports.agents import Meter
from fleet.ports.worktrees import EffectError
from tests.agents.conftest import (
    KEY,
    Body,
    FakeMeter,
    NoModel,
    Script,
    caller_for,
    events,
    fails,
    raw,
    says,
    settings_for,
    sse,
    text,
    unopened_client,
    use,
)

pytestmark = pytest.mark.anyio
MODEL = "claude-haiku-5-5"
ASKED = {"model": MODEL, "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "hi"}]}


@dataclass
class Agent:
    """An agent in the box."""

    relay: Relay
    http: aiohttp.ClientSession
    meter: FakeMeter
    folder: Path

    async def ask(
        self, body: Body | bytes = ASKED, path: str = "/v1/messages?beta=true", **more: Any
    ) -> tuple[int, str]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"x-api-key": "mine", "authorization": "Bearer mine", "anthropic-beta": "b1", "x-other": "o"}
        async with self.http.post(f"http://model{path}", data=data, headers=headers, **more) as answer:
            return answer.status, await answer.text()

    @property
    def transcript(self) -> list[Body]:
        return [json.loads(line) for line in (self.folder / "t" / "x.1.jsonl").read_text().splitlines()]


OpenAgent = Callable[..., AbstractAsyncContextManager[Agent]]


@pytest.fixture
def agent(model: Script, tmp_path: Path) -> OpenAgent:
    @asynccontextmanager
    async def opened(
        *,
        turns: int = 9,
        meter: Meter | None = None,
        caller: Caller | None = None,
        warmup: CacheWarmup | None = None,
        **settings: Any,
    ) -> AsyncIterator[Agent]:
        own_meter, socket = FakeMeter(), tmp_path / "m.sock"
        product = settings_for(model, tmp_path, **settings)
        with Transcripts(tmp_path / "t", secrets=(KEY,)).open("x", 1) as transcript:
            caller = caller or caller_for(product)
            async with open_client(product.access, product.timeouts) as client:
                relay = Relay(product, caller, client, meter or own_meter, transcript, MODEL, turns, warmup)
                connector = aiohttp.UnixConnector(str(socket))
                async with listening(relay, socket), aiohttp.ClientSession(connector=connector) as http:
                    yield Agent(relay, http, own_meter, tmp_path)

    return opened


async def test_an_answer_goes_through_as_it_is_with_our_key_and_is_counted(agent: OpenAgent, model: Script) -> None:
    model.will(says(text("hello"), use("Bash", {"command": "ls"})))
    async with agent() as box:
        status, message = await box.ask()
    assert status == 200
    assert message == "".join(
        f"event: {name}\ndata: {json.dumps(data)}\n\n"
        for name, data in events([text("hello"), use("Bash", {"command": "ls"})])
    )
    assert model.asked == [ASKED]
    (most,) = box.meter.reserved
    assert most.tokens >= 9 + len(json.dumps(ASKED["messages"])) // 4
    (sent,) = model.headers
    assert (sent["authorization"], sent["anthropic-beta"]) == (f"Bearer {KEY}", "b1")
    assert "mine" not in " ".join(sent.values())
    assert "x-other" not in sent
    (counted,) = box.meter.uses
    assert (counted.usage.input, counted.usage.output, counted.usage.cache_read) == (10, 20, 100)
    assert (counted.model, counted.doing, counted.turn) == (MODEL, "Bash ls", 1)
    assert counted.dollars is not None
    assert [line["event"] for line in box.transcript] == ["answer"]


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/v1/files", ASKED, 404, "is not forwarded"),
        ("/v1/messages/batches", ASKED, 404, "is not forwarded"),
        ("/v1/messages/../files", ASKED, 404, "is not forwarded"),
        ("/v1/messages", {**ASKED, "model": "claude-opus-5-5"}, 400, f"may only use the model {MODEL}"),
        ("/v1/messages", b"[]", 400, "is not a JSON object"),
        ("/v1/messages", b"{", 400, "is not a JSON object"),
    ],
)
async def test_nothing_else_goes_through(
    agent: OpenAgent, model: Script, *, path: str, body: Body | bytes, status: int, message: str
) -> None:
    async with agent() as box:
        answer = await box.ask(body, path)
    assert (answer[0], model.asked, box.meter.uses) == (status, [], [])
    assert message in answer[1]


async def test_of_a_conversation_of_ours_nothing_goes_through_but_what_was_checked(
    agent: OpenAgent, model: Script
) -> None:
    """Which of two fields of one name counts may be decided in another way by the service."""
    sent: list[str] = []

    async def reply(request: web.Request) -> web.StreamResponse:
        sent.append(await request.text())
        return await says(text("ok"), stop="end_turn")(request)

    model.will(reply)
    twice = b'{"model": "claude-opus-5-5", ' + json.dumps(ASKED).encode().removeprefix(b"{")
    async with agent(warmup=CacheWarmup(NoModel())) as box:
        assert (await box.ask(twice))[0] == 200
    assert json.loads(sent[0]) == ASKED
    assert "claude-opus-5-5" not in sent[0]


async def test_only_posts_go_through(agent: OpenAgent, model: Script) -> None:
    async with agent() as box, box.http.get("http://model/v1/messages") as answer:
        assert answer.status == 404
    assert model.asked == []


async def test_turns_and_the_budget_end_before_the_call(agent: OpenAgent, model: Script) -> None:
    model.will(says(text("one"), stop="end_turn"))
    async with agent(turns=2) as box:
        assert [(await box.ask())[0] for _ in range(3)] == [200, 200, 403]
        assert box.relay.refused is not None
        assert box.relay.refused.summary == "no report after 2 turns"
    meter = FakeMeter()
    async with agent(meter=AttemptBudget(meter, tokens=100)) as box:
        assert [(await box.ask())[0] for _ in range(2)] == [200, 403]
        assert box.relay.refused is not None
        assert "limit of its worker: 100" in box.relay.refused.summary
    assert (len(model.asked), len(meter.uses)) == (3, 1)


async def test_calls_go_one_at_a_time_so_that_a_limit_is_passed_by_one_at_most(agent: OpenAgent, model: Script) -> None:
    model.will(says(text("one"), stop="end_turn"))
    async with agent(meter=AttemptBudget(FakeMeter(), tokens=1)) as box, anyio.create_task_group() as calls:
        for _ in range(5):
            calls.start_soon(box.ask)
    assert len(model.asked) == 1


async def test_an_answer_that_breaks_off_breaks_off_and_is_paid_for(agent: OpenAgent, model: Script) -> None:
    model.will(sse(events([text("hello")])[:3]))
    async with agent() as box:
        assert (await box.ask())[0] == 200
        assert box.relay.failure is not None
        assert box.relay.failure.kind == "transient"
    assert [use.doing for use in box.meter.uses] == ["an interrupted answer"]
    assert box.meter.released == []
    assert box.transcript[-1]["event"] == "fault"


async def test_who_hangs_up_has_used_what_had_begun(agent: OpenAgent, model: Script) -> None:
    model.will(sse(events([text("hello")])[:3], then="ping"))
    async with agent() as box:
        with pytest.raises(TimeoutError):
            await box.ask(timeout=aiohttp.ClientTimeout(sock_read=None, total=0.5))
        with anyio.fail_after(10):
            while not box.meter.uses:  # noqa: ASYNC110 - there is no event to wait for
                await anyio.sleep(0.02)
    assert len(model.asked) == 1


async def test_what_was_not_streamed_is_counted_too(agent: OpenAgent, model: Script) -> None:
    message = {"model": MODEL, "content": [text("hi")], "stop_reason": "end_turn"}
    usage = {"input_tokens": 7, "output_tokens": 3}
    model.will(raw(json.dumps({**message, "usage": usage}).encode(), kind="application/json"))
    async with agent() as box:
        assert (await box.ask({**ASKED, "stream": False}))[0] == 200
    assert [use.usage.total for use in box.meter.uses] == [10]


@pytest.mark.parametrize(
    ("status", "type_", "kind"),
    [(529, "overloaded_error", "transient"), (401, "authentication_error", "configuration")],
)
async def test_what_the_service_refuses_is_passed_on_and_kept(
    agent: OpenAgent, model: Script, *, status: int, type_: str, kind: str
) -> None:
    model.will(fails(status, type_, f"no, {KEY}"), says(text("ok"), stop="end_turn"))
    async with agent(retries=1) as box:
        answer = await box.ask()
        assert answer[0] == status
        assert "no, [key]" in answer[1]
        assert box.relay.failure is not None
        assert (box.relay.failure.kind, box.meter.uses, box.meter.released) == (kind, [], [False])
        assert KEY not in box.relay.failure.model_dump_json()
        assert (await box.ask())[0] == 200
        assert box.relay.failure is None


async def test_the_relay_waits_for_a_limit_and_the_agent_does_not_notice(agent: OpenAgent, model: Script) -> None:
    """It shares rate limiter and circuit breaker with all callers: what one call learns, all know."""
    limited = fails(429, "rate_limit_error", headers={"retry-after": "0.2"})
    model.will(limited, says(text("ok"), stop="end_turn"))
    async with agent() as box:
        assert (await box.ask())[0] == 200
        gauges = box.relay.caller.service.gauges()
    assert (gauges.calls, gauges.answers, gauges.faults, gauges.underway) == (2, 1, {"limit": 1}, 0)
    assert (len(box.meter.uses), box.meter.released) == (1, [False])
    assert [line["event"] for line in box.transcript] == ["fault", "answer"]


async def test_an_open_circuit_breaker_stops_an_agent_in_the_box_too(agent: OpenAgent, model: Script) -> None:
    model.will(fails(401, "authentication_error"), says(text("ok"), stop="end_turn"))
    meter = FakeMeter(answered_before=True)
    async with agent(meter=meter) as box, anyio.create_task_group() as calls:
        calls.start_soon(box.ask)
        with anyio.fail_after(10):
            while not meter.notices:  # noqa: ASYNC110 - there is no event to wait for
                await anyio.sleep(0.02)
        assert len(model.asked) == 1
        meter.answers += 1  # a human says that it should work now
    assert (len(model.asked), len(meter.uses)) == (2, 1)
    assert [notice.condition for notice in meter.notices] == ["refused", "up"]


async def test_who_hangs_up_while_it_waits_makes_no_call(agent: OpenAgent, model: Script) -> None:
    model.will(fails(429, "rate_limit_error", headers={"retry-after": "1"}), says(text("ok"), stop="end_turn"))
    async with agent() as box:
        with pytest.raises(TimeoutError):
            await box.ask(timeout=aiohttp.ClientTimeout(total=0.2))
        await anyio.sleep(0.5)
        assert box.relay.caller.service.gauges().waiting == 0
        assert len(model.asked) == 1
        assert (await box.ask())[0] == 200


async def test_a_call_that_would_wait_is_not_made_once_the_run_is_drained(agent: OpenAgent, model: Script) -> None:
    model.will(fails(429, "rate_limit_error", headers={"retry-after": "3600"}))
    meter = FakeMeter(drained=True)
    async with agent(meter=meter) as box:
        status, message = await box.ask()
        assert (status, box.relay.drained, box.relay.failure, box.relay.refused) == (403, True, None, None)
    assert "the attempt has ended" in message
    assert len(model.asked) == 1


async def test_a_service_that_is_not_there_is_a_passing_fault(agent: OpenAgent, model: Script) -> None:
    model.url = "http://127.0.0.1:9"
    async with agent() as box:
        assert (await box.ask())[0] == 502
        assert box.relay.failure is not None
        assert box.relay.failure.kind == "transient"


async def test_a_socket_that_can_not_be_made_is_the_machines_fault(model: Script, tmp_path: Path) -> None:
    socket = tmp_path / ("x" * 120)
    product = settings_for(model, tmp_path)
    with Transcripts(tmp_path / "t", secrets=(KEY,)).open("x", 1) as transcript:
        relay = Relay(product, caller_for(product), unopened_client(product), FakeMeter(), transcript, MODEL, 1)
        with pytest.raises(EffectError) as caught:
            async with listening(relay, socket):
                pass
    assert caught.value.failure.kind == "infrastructure"
