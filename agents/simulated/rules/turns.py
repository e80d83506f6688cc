"""The order of a conversation: who speaks when, and that every tool call has its result."""

from collections.abc import Mapping, Sequence
from typing import Any

from agents.simulated.rules.prompt import as_blocks
from agents.simulated.rules.refusal import RequestError

MOST_MESSAGES = 100_000


def check_turns(messages: Sequence[Mapping[str, Any]]) -> None:
    """Raises `RequestError` for a conversation out of order."""
    if not messages:
        raise RequestError("messages: at least one message is required")
    if len(messages) > MOST_MESSAGES:
        raise RequestError(f"messages: at most {MOST_MESSAGES} messages are allowed")
    _check_roles([message["role"] for message in messages])
    seen: set[str] = set()
    open_calls: list[str] = []
    for index, message in enumerate(messages):
        blocks = as_blocks(message["content"])
        _check_content(index, message["role"], blocks, is_last=index == len(messages) - 1)
        if message["role"] == "user":
            _check_results(index, blocks, open_calls)
            open_calls = []
        elif message["role"] == "assistant":
            open_calls = [str(block["id"]) for block in blocks if block["type"] == "tool_use"]
            for call in open_calls:
                if call in seen:
                    raise RequestError(f"messages.{index}: `tool_use` ids must be unique: {call}")
                seen.add(call)
    if open_calls:
        raise RequestError(_unanswered(len(messages) - 1, open_calls))


def _check_roles(roles: Sequence[str]) -> None:
    if roles[0] != "user":
        raise RequestError('messages: first message must use the "user" role')
    spoken = ""
    for index, role in enumerate(roles):
        if role == "system":
            if roles[index - 1] != "user":
                raise RequestError(f'messages.{index}: a "system" message must come directly after a "user" message')
            continue
        if role == spoken:
            raise RequestError(
                'messages: roles must alternate between "user" and "assistant", '
                f'but found multiple "{role}" roles in a row'
            )
        spoken = role


def _check_content(index: int, role: str, blocks: Sequence[Mapping[str, Any]], *, is_last: bool) -> None:
    allowed = {"user": {"text", "tool_result", "image", "document", "search_result"}, "system": {"text"}}
    if not blocks and not (is_last and role == "assistant"):
        raise RequestError(f"messages.{index}: all messages must have non-empty content")
    for number, block in enumerate(blocks):
        path = f"messages.{index}.content.{number}"
        if role in allowed and block["type"] not in allowed[role]:
            raise RequestError(f"{path}: a {role!r} message may not contain a block of type {block['type']!r}")
        if block["type"] == "tool_result" and role != "user":
            raise RequestError(f"{path}: `tool_result` blocks can only be in `user` messages")
        if block["type"] == "text" and not str(block["text"]).strip():
            raise RequestError(f"{path}: text content blocks must contain non-whitespace text")


def _check_results(index: int, blocks: Sequence[Mapping[str, Any]], calls: Sequence[str]) -> None:
    """The results of the calls before come first, one for each and in their order."""
    results = [str(block["tool_use_id"]) for block in blocks if block["type"] == "tool_result"]
    if missing := [call for call in calls if call not in results]:
        raise RequestError(_unanswered(index - 1, missing))
    if unknown := [call for call in results if call not in calls]:
        raise RequestError(f"messages.{index}: unexpected `tool_use_id` in `tool_result` blocks: {', '.join(unknown)}")
    if len(results) != len(calls):
        raise RequestError(f"messages.{index}: each `tool_use` must have a single result")
    if any(block["type"] != "tool_result" for block in blocks[: len(results)]):
        raise RequestError(f"messages.{index}: `tool_result` blocks must come before all other content")
    if list(calls) != results:
        raise RequestError(f"messages.{index}: `tool_result` blocks must be in the order of their `tool_use` blocks")


def _unanswered(index: int, calls: Sequence[str]) -> str:
    return (
        f"messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after: "
        f"{', '.join(calls)}. Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    )
