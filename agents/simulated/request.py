"""A request to the Messages API, as far as a simulated model must understand it. Refuses what the newest models refuse.

Everything a simulated mind knows stands in the request: its role, its subtask, the state and what it did so far.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Role = Literal["planner", "worker", "other"]

SESSION_ENDING = "StructuredOutput"
"""The tool with which a session of Claude Code reports."""
_ENDINGS: dict[str, Role] = {"submit_revision": "planner", "report": "worker", SESSION_ENDING: "worker"}
_STEP = re.compile(r"toolu_simulated_([a-z]+[0-9]*)_([0-9]+)")


class Refused(Exception):  # noqa: N818 - it is an answer, not a mistake in the code
    """The request is none: answered with 400."""


class _Message(BaseModel):
    model_config = ConfigDict(extra="ignore")
    role: Literal["user", "assistant", "system"]
    content: str | list[dict[str, Any]]


class _Body(BaseModel):
    model_config = ConfigDict(extra="ignore")
    model: str = Field(min_length=1)
    max_tokens: int = Field(ge=1)
    messages: list[_Message] = Field(min_length=1)
    system: str | list[dict[str, Any]] = ""
    tools: list[dict[str, Any]] = []
    tool_choice: dict[str, Any] | None = None
    temperature: float | None = None
    stream: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """What came back for one of our tool calls."""

    text: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class Turn:
    """One of our own answers that called tools, and what came of it."""

    step: str
    results: tuple[Result, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """A call to the model."""

    model: str
    stream: bool
    role: Role
    tools: frozenset[str]
    turns: tuple[Turn, ...]
    """Our turns so far whose tool calls were in order, oldest first."""
    run: str
    subtask: Mapping[str, Any]
    attempt: int
    guidance: str
    state: Mapping[str, Any]
    blocks: tuple[tuple[str, bool], ...]
    """Everything in the order it is cached, and whether a cache breakpoint stands on it."""


def parse_request(data: object) -> Request:
    """The request in a body. Raises `Refused` with what the real service would say."""
    try:
        body = _Body.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        raise Refused(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    _refuse_what_new_models_refuse(body)
    results = _checked_results(body.messages)
    names = frozenset(str(tool.get("name", "")) for tool in body.tools)
    role: Role = next((role for name, role in _ENDINGS.items() if name in names), "other")
    spoken = _user_texts(body.messages)
    first_user = spoken[0] if spoken else ""
    attempt = _block(first_user, "attempt") if role == "worker" else {}
    state = _block("\n".join(spoken), "state", last=True) if role == "planner" else {}
    return Request(
        model=body.model,
        stream=body.stream,
        role=role,
        tools=names,
        turns=tuple(_turns(body.messages, results)),
        run=str(attempt.get("run") or state.get("run") or ""),
        subtask=_block(first_user, "subtask") if role == "worker" else {},
        attempt=_number(attempt.get("number")),
        guidance=str(attempt.get("guidance") or ""),
        state=state,
        blocks=tuple(_cached_order(body)),
    )


def _refuse_what_new_models_refuse(body: _Body) -> None:
    if body.messages[-1].role == "assistant":
        raise Refused("messages: This model does not support assistant message prefill.")
    if body.tool_choice is not None and body.tool_choice.get("type") not in {"auto", "none"}:
        raise Refused("tool_choice: This model does not support forcing the use of a tool.")
    if body.temperature is not None:
        raise Refused("temperature: This model does not support sampling parameters.")


def _blocks_of(message: _Message) -> list[dict[str, Any]]:
    return [{"type": "text", "text": message.content}] if isinstance(message.content, str) else message.content


def _checked_results(messages: list[_Message]) -> dict[str, Result]:
    """The results of all tool calls by the call's id. Every call must have one in the message after it."""
    results: dict[str, Result] = {}
    open_calls: list[str] = []
    for index, message in enumerate(messages):
        blocks = _blocks_of(message)
        here = {str(block.get("tool_use_id")): _result(block) for block in blocks if block.get("type") == "tool_result"}
        missing = [call for call in open_calls if call not in here]
        if missing:
            raise Refused(f"messages.{index}: `tool_use` ids without `tool_result` blocks: {', '.join(missing)}")
        unknown = [call for call in here if call not in open_calls]
        if unknown:
            raise Refused(f"messages.{index}: `tool_result` for unknown `tool_use_id`: {', '.join(unknown)}")
        results |= here
        calls = [str(block.get("id")) for block in blocks if block.get("type") == "tool_use"]
        open_calls = calls if message.role == "assistant" else []
    return results


def _result(block: Mapping[str, Any]) -> Result:
    return Result(_text(block.get("content")), bool(block.get("is_error")))


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(str(item["text"]) for item in content if isinstance(item, dict) and "text" in item)


def _turns(messages: Iterable[_Message], results: Mapping[str, Result]) -> Iterator[Turn]:
    for message in messages:
        if message.role != "assistant":
            continue
        ids = [str(block.get("id")) for block in _blocks_of(message) if block.get("type") == "tool_use"]
        steps = [found[1] for call in ids if (found := _STEP.fullmatch(call))]
        if steps:
            yield Turn(steps[0], tuple(results.get(call, Result("", is_error=False)) for call in ids))


def _user_texts(messages: Iterable[_Message]) -> list[str]:
    """What the user said, message by message; results of tools are not among it."""
    texts = (_text(_blocks_of(message)) for message in messages if message.role == "user")
    return [text for text in texts if text]


def _block(text: str, name: str, *, last: bool = False) -> Mapping[str, Any]:
    """The JSON object in `<name>…</name>`: the first one, or the last."""
    found = re.findall(rf"<{name}>(.*?)</{name}>", text, re.DOTALL)
    if not found:
        return {}
    try:
        data = json.loads(found[-1 if last else 0])
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _number(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 1


def _cached_order(body: _Body) -> Iterator[tuple[str, bool]]:
    system = [{"type": "text", "text": body.system}] if isinstance(body.system, str) else body.system
    marked: list[Mapping[str, Any]] = [*body.tools, *system]
    for block in marked:
        yield _cacheable("", block)
    for message in body.messages:
        for block in _blocks_of(message):
            yield _cacheable(message.role, block)


def _cacheable(owner: str, block: Mapping[str, Any]) -> tuple[str, bool]:
    rest = {name: value for name, value in block.items() if name != "cache_control"}
    return f"{owner}{json.dumps(rest, sort_keys=True, ensure_ascii=False)}", bool(block.get("cache_control"))
