"""What a service lacks: requests are sent without it, and a service that refuses it by name is understood."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import pytest

from agents.models.access import Access
from agents.models.answer import Answer, CallFault, Request, parameters_of
from agents.models.client import Client, open_client
from agents.models.exchange import Timeouts, refused_capability
from agents.simulated.script import parse_script
from agents.simulated.server import SimulatedService, serve
from agents.tools.edit import Bash, EditTool
from fleet.core.base.usage import CAPABILITIES, USES, Capability
from tests.agents.conftest import KEY, ignore

pytestmark = pytest.mark.anyio
MODEL = "claude-haiku-5-5"
STRICT = {"name": "report", "description": "x", "strict": True, "input_schema": {"type": "object", "properties": {}}}
THOUGHT = {"type": "thinking", "thinking": "", "signature": "s"}
REQUEST = Request(
    MODEL,
    1000,
    "Be brief.",
    (Bash.declaration, EditTool.declaration, STRICT),
    ({"role": "user", "content": [{"type": "text", "text": "Hi"}]},),
    effort="low",
    kept_s=3600,
)
LATER = replace(
    REQUEST,
    messages=(
        *REQUEST.messages,
        {"role": "assistant", "content": [THOUGHT, {"type": "text", "text": "a"}]},
        *REQUEST.messages,
    ),
)
SIGNS: Mapping[Capability, Callable[[Mapping[str, Any]], bool]] = {
    "thinking": lambda sent: "thinking" in sent,
    "thinking_history": lambda sent: '"type": "thinking"' in json.dumps(sent["messages"]),
    "effort": lambda sent: "output_config" in sent,
    "strict_tools": lambda sent: '"strict"' in json.dumps(sent["tools"]),
    "built_in_tools": lambda sent: '"type": "bash_' in json.dumps(sent["tools"]),
    "cache": lambda sent: "cache_control" in json.dumps(sent),
    "cache_hour": lambda sent: '"ttl"' in json.dumps(sent),
    "diagnostics": lambda sent: "diagnostics" in sent,
}
"""What shows in the parameters of a request."""
ELSEWHERE: set[Capability] = {"keep_alive", "streaming", "models", "count_tokens", "batches"}
LEARNED: set[Capability] = {*SIGNS, "streaming"} - {"thinking_history"}

Serve = Callable[..., Awaitable[tuple[Client, SimulatedService]]]


@asynccontextmanager
async def opened() -> AsyncIterator[Serve]:
    """From what a service lacks, and what it is configured to lack, to a client of it."""
    async with AsyncExitStack() as stack, anyio.create_task_group() as tasks:

        async def start(lacks: tuple[str, ...], without: tuple[Capability, ...] = (), **more: Any) -> Any:
            script = parse_script({"lacks": list(lacks), "cache_minimum_tokens": 0, **more})
            service, ready, urls = SimulatedService(script), anyio.Event(), list[str]()

            def on_ready(url: str) -> None:
                urls.append(url)
                ready.set()

            tasks.start_soon(lambda: serve(script, on_ready=on_ready, service=service))
            await ready.wait()
            access, limits = Access(urls[0], KEY, frozenset(without)), Timeouts(10, 10)
            return await stack.enter_async_context(open_client(access, limits)), service

        yield start
        await stack.aclose()
        tasks.cancel_scope.cancel()


def test_every_capability_is_explained_and_tested() -> None:
    assert set(USES) == set(CAPABILITIES) == set(SIGNS) | ELSEWHERE


@pytest.mark.parametrize("capability", SIGNS)
def test_a_request_lacks_what_the_service_lacks_and_nothing_else(capability: Capability) -> None:
    whole, sent = parameters_of(LATER, frozenset()), parameters_of(LATER, frozenset({capability}))
    assert SIGNS[capability](whole)
    assert not SIGNS[capability](sent)
    gone = {name for name, sign in SIGNS.items() if not sign(sent)}
    assert gone == {capability, *({"cache_hour"} if capability == "cache" else set())}


def test_tools_of_the_service_are_described_to_one_that_does_not_know_them() -> None:
    bash, edit, report = parameters_of(REQUEST, frozenset({"built_in_tools"}))["tools"]
    assert (bash["name"], edit["name"], report) == ("bash", "str_replace_based_edit_tool", STRICT)
    assert set(bash) == set(edit) == {"name", "description", "input_schema"}
    assert edit["input_schema"]["properties"]["command"]["enum"] == ["view", "create", "str_replace", "insert"]


@pytest.mark.parametrize("capability", [*SIGNS, "streaming"])
async def test_a_service_that_lacks_something_refuses_it_and_answers_without_it(capability: Capability) -> None:
    asked = LATER if capability == "thinking_history" else REQUEST
    async with opened() as start:
        client, _ = await start((capability,), terse=True)
        refused = await client.ask(asked, ignore)
        assert isinstance(refused, CallFault)
        assert (refused.kind, refused.status) == ("configuration", 400)
        client, _ = await start((capability,), (capability,), terse=True)
        answer = await client.ask(asked, ignore)
    assert isinstance(answer, Answer)
    assert answer.blocks


@pytest.mark.parametrize("capability", sorted(LEARNED))
async def test_what_is_refused_by_name_is_left_out_from_then_on(capability: Capability) -> None:
    async with opened() as start:
        client, service = await start((capability,))
        assert isinstance(await client.ask(REQUEST, ignore), Answer)
        assert isinstance(await client.ask(REQUEST, ignore), Answer)
    assert client.lacks(MODEL, capability)
    assert sum(service.broken.values()) == 1
    (warning,) = client.take_warnings()
    assert f'models.without = ["{capability}"]' in warning
    assert client.take_warnings() == []


async def test_nothing_is_left_out_for_a_refusal_that_names_nothing() -> None:
    assert (
        refused_capability(CallFault("configuration", "HTTP 400 x: The request could not be processed"), frozenset())
        is None
    )


async def test_a_service_that_lacks_everything_is_used_without_it() -> None:
    async with opened() as start:
        client, service = await start(CAPABILITIES, CAPABILITIES, terse=True)
        answer = await client.ask(LATER, ignore)
        assert await client.limits(MODEL) is None
    assert isinstance(answer, Answer)
    assert answer.usage.cache_write == 0
    assert service.broken == {}


async def test_a_request_for_the_cache_alone_is_refused_once() -> None:
    async with opened() as start:
        client, _ = await start(("keep_alive",))
        assert not client.lacks(MODEL, "keep_alive")
        assert isinstance(await client.ask(replace(REQUEST, max_tokens=0), ignore), CallFault)
        assert client.lacks(MODEL, "keep_alive")
        assert isinstance(await client.ask(REQUEST, ignore), Answer)


async def test_limits_are_not_asked_of_a_service_without_them() -> None:
    async with opened() as start:
        client, _ = await start(())
        assert await client.limits(MODEL) is not None
        client, _ = await start((), ("models",))
        assert await client.limits(MODEL) is None
        client, _ = await start(("models",))
        assert await client.limits(MODEL) is None


def test_one_model_may_lack_more_than_others() -> None:
    access = Access("http://x", KEY, frozenset({"diagnostics"}), {"old": frozenset({"effort"})})
    assert access.lacking("old") == {"diagnostics", "effort"}
    assert access.lacking("new") == {"diagnostics"}


async def test_an_answer_that_is_not_streamed_is_waited_for() -> None:
    """Nothing is heard before it is complete: only the limit of the whole call applies."""
    async with opened() as start:
        client, _ = await start((), ("streaming",), pace={"think_s": 0.3})
        client._timeouts = Timeouts(silence_s=0.05, call_s=10)
        assert isinstance(await client.ask(REQUEST, ignore), Answer)
