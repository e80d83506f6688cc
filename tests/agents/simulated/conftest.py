"""A simulated model on loopback, and the real SDK to talk to it."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anthropic
import anyio
import httpx2
import pytest

from agents.simulated.script import parse_script
from agents.simulated.server import serve

WORKER_TOOLS: list[dict[str, Any]] = [
    {"type": "bash_20250124", "name": "bash"},
    {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
    {"name": "report", "description": "Report.", "input_schema": {"type": "object"}},
]
PLANNER_TOOLS: list[dict[str, Any]] = [
    {"name": "list_files", "description": "List.", "input_schema": {"type": "object"}},
    {"name": "submit_revision", "description": "Submit.", "input_schema": {"type": "object"}},
]
SUBTASK: dict[str, Any] = {
    "id": "tokens",
    "title": "Split text into tokens",
    "goal": "Split it.",
    "acceptance": [{"criterion": "It splits", "run": "python3 -m unittest tests.test_tokens"}],
    "touches": ["tokens.py"],
}


class Client:
    """The SDK, and the shortest way to say what these tests say."""

    def __init__(self, sdk: anthropic.AsyncAnthropic, url: str) -> None:
        self.sdk = sdk
        self.url = url

    async def ask(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], **more: Any
    ) -> anthropic.types.Message:
        asked: dict[str, Any] = {"model": "claude-haiku-5-5", "max_tokens": 16000, **more}
        message: anthropic.types.Message = await self.sdk.messages.create(messages=messages, tools=tools, **asked)  # type: ignore[arg-type] # plain dictionaries are what goes over the wire
        return message

    async def stream(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]], **more: Any
    ) -> anthropic.types.Message:
        asked: dict[str, Any] = {"model": "claude-haiku-5-5", "max_tokens": 16000, **more}
        async with self.sdk.messages.stream(messages=messages, tools=tools, **asked) as stream:  # type: ignore[arg-type] # plain dictionaries are what goes over the wire
            return await stream.get_final_message()

    async def plan(self, state: dict[str, Any], **more: Any) -> dict[str, Any]:
        """What the planner submits for a state, without exploring."""
        tools = [tool for tool in PLANNER_TOOLS if tool["name"] == "submit_revision"]
        message = await self.ask(planner_messages(state), tools, **more)
        submitted: dict[str, Any] = calls(message)[0].input
        return submitted


Connect = Callable[[dict[str, Any]], AbstractAsyncContextManager[Client]]


@asynccontextmanager
async def connected(script: dict[str, Any], key: str = "dummy") -> AsyncIterator[Client]:
    urls: list[str] = []
    ready = anyio.Event()

    def on_ready(url: str) -> None:
        urls.append(url)
        ready.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: serve(parse_script(script), on_ready=on_ready))
        await ready.wait()
        transport = httpx2.AsyncClient(trust_env=False, limits=httpx2.Limits(max_connections=400), timeout=20)
        sdk = anthropic.AsyncAnthropic(api_key=key, base_url=urls[0], max_retries=0, http_client=transport)
        async with sdk:
            yield Client(sdk, urls[0])
        tasks.cancel_scope.cancel()


@pytest.fixture
def connect() -> Connect:
    return connected


def worker_messages(attempt: int = 1, run: str = "r1", **subtask: Any) -> list[dict[str, Any]]:
    text = f"<subtask>{json.dumps(SUBTASK | subtask)}</subtask>\n"
    text += f"<attempt>{json.dumps({'run': run, 'number': attempt})}</attempt>"
    return [{"role": "user", "content": [{"type": "text", "text": text}]}]


def planner_messages(state: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": f"<epic>Build it.</epic>\n<state>{json.dumps(state)}</state>"}]


def calls(message: anthropic.types.Message) -> list[anthropic.types.ToolUseBlock]:
    return [block for block in message.content if block.type == "tool_use"]


def answered(
    messages: list[dict[str, Any]], message: anthropic.types.Message, *results: str, error: bool = False
) -> list[dict[str, Any]]:
    """The conversation with an answer and the results of its tool calls."""
    used = calls(message)
    texts = results or ("exit: 0",) * len(used)
    blocks = [
        {"type": "tool_result", "tool_use_id": call.id, "content": text, "is_error": error}
        for call, text in zip(used, texts, strict=True)
    ]
    assistant = {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in message.content]}
    return [*messages, assistant, {"role": "user", "content": blocks}]
