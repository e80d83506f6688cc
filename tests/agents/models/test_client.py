"""The model client over real HTTP: every way a call can go wrong is a fault with the right kind."""

import json
from typing import Any

import anyio
import pytest
from aiohttp import web

from agents.models.access import Access
from agents.models.answer import Answer, CallFault, Quota, Quotas, Request
from agents.models.client import open_client
from agents.models.exchange import Timeouts
from fleet.core.base.usage import Usage
from tests.agents.conftest import KEY, Body, Reply, Script, client_for, events, fails, ignore, raw, says, sse, text, use

pytestmark = pytest.mark.anyio
STRICT = {"name": "report", "strict": True, "input_schema": {"type": "object"}}
REQUEST = Request(
    "claude-haiku-5-5", 100, "Be brief.", (STRICT,), ({"role": "user", "content": [{"type": "text", "text": "Hi"}]},)
)


async def ask(model: Script, *replies: Reply, **line: Any) -> Answer | CallFault:
    model.will(*replies)
    async with client_for(model, **line) as client:
        return await client.ask(REQUEST, ignore)


async def fault(model: Script, *replies: Reply, **line: float) -> CallFault:
    result = await ask(model, *replies, **line)
    assert isinstance(result, CallFault)
    return result


async def test_an_answer_is_folded_from_its_stream(model: Script) -> None:
    result = await ask(model, says(text("Hello there"), use("bash", {"command": "ls — ünï"})))
    assert isinstance(result, Answer)
    assert result.text == "Hello there"
    assert [call.action for call in result.calls] == ['bash {"command": "ls — ünï"}']
    assert result.usage == Usage(input=10, output=20, cache_read=100, cache_write=5)
    assert (result.stop_reason, result.model, result.request_id) == ("tool_use", "claude-haiku-5-5", "req_1")


@pytest.mark.parametrize(
    ("reply", "kind", "status"),
    [
        (fails(400, "invalid_request_error"), "configuration", 400),
        (fails(400, "invalid_request_error", "prompt is too long: 300000 tokens > 200000 maximum"), "too_long", 400),
        (fails(401, "authentication_error"), "refused", 401),
        (fails(402, "billing_error"), "refused", 402),
        (fails(403, "permission_error"), "refused", 403),
        (fails(404, "not_found_error"), "gone", 404),
        (fails(413, "request_too_large"), "too_long", 413),
        (fails(429, "rate_limit_error"), "limit", 429),
        (fails(500, "api_error"), "outage", 500),
        (fails(500, "api_error", headers={"x-should-retry": "false"}), "other", 500),
        (fails(529, "overloaded_error"), "outage", 529),
        (raw(b"<html>Forbidden</html>", status=403), "refused", 403),
        (raw(b"<html>Bad gateway</html>", status=502), "outage", 502),
        (raw(b"", status=503), "outage", 503),
        (raw(b""), "outage", None),
        (raw(b"<html>Welcome</html>"), "outage", None),
        (raw(b'{"type": "message"}', kind="application/json"), "outage", None),
        (raw(b"event: message_start\ndata: {nonsense\n\n", kind="text/event-stream"), "outage", None),
        (raw(b"event: message_start\ndata: [1]\n\n", kind="text/event-stream"), "outage", None),
        (raw(b"event: message_start\ndata: \xff\xfe\n\n", kind="text/event-stream"), "outage", None),
    ],
)
async def test_an_error_answer_is_a_fault_of_the_right_kind(
    model: Script, reply: Reply, kind: str, status: int | None
) -> None:
    result = await fault(model, reply)
    assert (result.kind, result.status) == (kind, status)
    assert len(model.asked) == 1


@pytest.mark.parametrize(
    ("type_", "kind"),
    [
        ("overloaded_error", "outage"),
        ("api_error", "outage"),
        ("rate_limit_error", "limit"),
        ("authentication_error", "refused"),
        ("something_new", "outage"),
    ],
)
async def test_an_error_in_the_stream_is_classified_by_its_type(model: Script, type_: str, kind: str) -> None:
    error = {"type": "error", "error": {"type": type_, "message": "so"}}
    result = await fault(model, sse([*events([use("bash", {"command": "ls"})])[:-2], ("error", error)]))
    assert result.kind == kind
    assert "so" in result.message
    assert result.usage == Usage(input=10, output=1, cache_read=100, cache_write=5)


async def test_what_the_limits_leave_is_read_from_good_answers_and_from_bad_ones(model: Script) -> None:
    headers = {
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-requests-remaining": "49",
        "anthropic-ratelimit-input-tokens-limit": "1000",
        "anthropic-ratelimit-input-tokens-remaining": "nan",
        "anthropic-ratelimit-output-tokens-limit": "0",
        "anthropic-ratelimit-output-tokens-remaining": "0",
    }
    result = await fault(model, fails(429, "rate_limit_error", headers={**headers, "retry-after": "2"}))
    assert (result.quotas, result.retry_after_s) == ({"requests": Quota(50, 49)}, 2)

    begun: list[Quotas] = []
    model.will(sse(events([text("ok")]), headers=headers))
    async with client_for(model) as client:
        assert isinstance(await client.ask(REQUEST, begun.append), Answer)
    assert begun == [{"requests": Quota(50, 49)}]


@pytest.mark.parametrize("cut", range(7))
async def test_a_stream_that_ends_early_is_a_fault_wherever_it_ends(model: Script, cut: int) -> None:
    sent = events([use("bash", {"command": "ls"})])
    assert len(sent) == 8
    result = await fault(model, sse(sent[:cut]))
    assert (result.kind, result.message) == ("broken" if cut else "outage", "the stream broke off before its end")


@pytest.mark.parametrize("then", ["hang", "ping"])
async def test_a_stream_without_content_is_given_up(model: Script, then: str) -> None:
    result = await fault(model, sse(events([text("so")])[:2], then=then), silence_s=0.2)
    assert (result.kind, result.message) == ("broken", "no content for 0.2 s")
    assert result.usage is not None


async def test_a_slow_stream_with_content_is_not_given_up(model: Script) -> None:
    async def slow(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for name, data in events([text("slowly but surely")]):
            await anyio.sleep(0.1)
            await response.write(f"event: {name}\ndata: {json.dumps(data)}\n\n".encode())
        return response

    assert isinstance(await ask(model, slow, silence_s=0.5), Answer)


async def test_a_call_that_never_ends_is_given_up(model: Script) -> None:
    result = await fault(model, sse([], then="hang"), silence_s=5, call_s=0.2)
    assert result.message == "not finished after 0.2 s"


async def test_a_reset_connection_is_a_transient_fault(model: Script) -> None:
    async def reset(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    assert (await fault(model, reset)).kind == "outage"


async def test_a_server_that_is_not_there_is_a_transient_fault() -> None:
    async with open_client(Access("http://127.0.0.1:9", KEY), Timeouts(connect_s=2, silence_s=2, call_s=2)) as client:
        result = await client.ask(REQUEST, ignore)
    assert isinstance(result, CallFault)
    assert result.kind == "outage"


async def test_a_schema_the_service_finds_too_large_is_sent_again_without_strict(model: Script) -> None:
    refusal = fails(400, "invalid_request_error", "The compiled grammar is too large. Simplify your tool schemas.")
    model.will(refusal, says(text("ok")), says(text("ok")))
    async with client_for(model) as client:
        assert isinstance(await client.ask(REQUEST, ignore), Answer)
        assert isinstance(await client.ask(REQUEST, ignore), Answer)
    assert ["strict" in call["tools"][0] for call in model.asked] == [True, False, False]


async def test_unknown_events_and_fields_do_no_harm(model: Script) -> None:
    sent: list[tuple[str, Body]] = events([text("ok")])
    sent.insert(1, ("novelty", {"type": "novelty", "delta": 1}))
    sent.insert(2, ("ping", {"type": "ping"}))
    sent[0][1]["message"]["extra"] = {"x": 1}
    result = await ask(model, sse(sent))
    assert isinstance(result, Answer)
    assert result.text == "ok"


@pytest.mark.parametrize(
    "event",
    [
        {"type": "content_block_delta", "index": 7, "delta": {"type": "text_delta", "text": "x"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": 5}},
        {"type": "content_block_delta", "index": 0, "delta": "x"},
        {"type": "content_block_start", "index": 1, "content_block": "x"},
        {"type": "message_delta", "delta": None},
        {"type": "message_start"},
    ],
)
async def test_a_senseless_event_makes_the_answer_a_fault(model: Script, event: dict[str, Any]) -> None:
    sent = events([text("ok")])
    sent.insert(2, (event["type"], event))
    assert (await fault(model, sse(sent))).kind in {"broken", "outage"}


async def test_lines_may_end_with_a_carriage_return(model: Script) -> None:
    lines = "".join(f"event: {name}\r\ndata: {json.dumps(data)}\r\n\r\n" for name, data in events([text("ok")]))
    result = await ask(model, raw(lines.encode(), kind="text/event-stream"))
    assert isinstance(result, Answer)
    assert result.text == "ok"


async def test_a_great_many_small_pieces_are_folded_in_good_time(model: Script) -> None:
    sent = events([use("bash", {"command": "x" * 300_000})])
    assert len(sent) > 40_000
    result = await ask(model, sse(sent), silence_s=20, call_s=20)
    assert isinstance(result, Answer)
    assert len(result.calls[0].input["command"]) == 300_000


@pytest.mark.parametrize("bearer", [True, False], ids=["bearer", "x-api-key"])
async def test_a_gateway_gets_the_key_as_it_wants_it_and_headers_of_its_own(model: Script, bearer: bool) -> None:
    model.will(says(text("ok")))
    headers = {"x-team": "platform", "x-gateway-key": "canary-gateway"}
    access = Access(model.url, KEY, bearer=bearer, headers=headers)
    async with open_client(access, Timeouts(5, 5)) as client:
        assert isinstance(await client.ask(REQUEST, ignore), Answer)
        async with client.forward("/v1/messages", b"{}", {"anthropic-version": "1"}) as forwarded:
            assert forwarded.status == 200
    keys = {"authorization": f"Bearer {KEY}"} if bearer else {"x-api-key": KEY}
    for sent in model.headers:
        assert {name: value for name, value in sent.items() if KEY in value} == keys
        assert (sent["x-team"], sent["x-gateway-key"]) == ("platform", "canary-gateway")
    assert len(model.headers) == 2


async def test_no_fault_shows_the_key_or_the_header_of_a_gateway(model: Script) -> None:
    model.will(fails(400, "invalid_request_error", f"got {KEY} and canary-gateway"))
    access = Access(model.url, KEY, headers={"x-gateway-key": "canary-gateway", "x-team": "blue"})
    async with open_client(access, Timeouts(5, 5)) as client:
        result = await client.ask(REQUEST, ignore)
    assert isinstance(result, CallFault)
    assert result.message.endswith("got [key] and [key]")
    assert "canary" not in repr(access)


async def test_a_redirect_is_not_followed_and_takes_no_key_elsewhere(model: Script) -> None:
    async def elsewhere(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=307, headers={"location": f"{model.url}/v1/messages"})

    result = await fault(model, elsewhere)
    assert (result.status, len(model.asked)) == (307, 1)
