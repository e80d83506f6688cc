"""What a simulated model understands of a request: its role, its subtask, the state and what it did so far."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from agents.simulated.prompt import Body
from fleet.core.base.output import parse_json

Role = Literal["planner", "worker", "reviewer", "other"]

SESSION_ENDING = "StructuredOutput"
"""The tool with which a session of Claude Code reports."""
_ENDINGS: dict[str, Role] = {
    "submit_revision": "planner",
    "report": "worker",
    SESSION_ENDING: "worker",
    "submit_review": "reviewer",
}
_STEP = re.compile(r"toolu_simulated_([a-z]+)_([0-9]+)_[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one of our tool calls."""

    text: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class PastTurn:
    """One of our own answers that called tools, with the results."""

    step: str
    number: int
    """Which of its kind, from 0: earlier ones may have been left out of a long conversation."""
    results: tuple[Result, ...]


@dataclass(frozen=True, slots=True)
class Request:
    """A call to the model."""

    model: str
    role: Role
    tools: frozenset[str]
    turns: tuple[PastTurn, ...]
    """Our turns so far whose tool calls were valid, oldest first."""
    run: str
    subtask: Mapping[str, Any]
    attempt: int
    guidance: str
    state: Mapping[str, Any]
    review: Mapping[str, Any] = field(default_factory=dict)
    change: str = ""
    """The change under review, as the tool returned it."""
    ours: str = ""
    """What the client says in its own words, the system prompt included."""

    def done(self, step: str) -> int:
        """How many turns of this step there were, also where a shortened conversation no longer has them all."""
        return max((turn.number + 1 for turn in self.turns if turn.step == step), default=0)


def read_request(body: Body) -> Request:
    tools = frozenset(str(tool.get("name", "")) for tool in body.tools)
    role: Role = next((role for name, role in _ENDINGS.items() if name in tools), "other")
    texts = [text for message in body.messages if message.role == "user" and (text := _text(message.blocks))]
    first = texts[0] if texts and role in {"worker", "reviewer"} else ""
    review = _block(first, "review") if role == "reviewer" else {}
    attempt = {"run": review.get("run"), "number": review.get("attempt")} if review else _block(first, "attempt")
    state = _block("\n".join(texts), "state", last=True) if role == "planner" else {}
    number = attempt.get("number")
    return Request(
        model=body.model,
        role=role,
        tools=tools,
        turns=tuple(_turns(body)),
        run=str(attempt.get("run") or state.get("run") or ""),
        subtask=_block(first, "subtask"),
        attempt=number if isinstance(number, int) and number > 0 else 1,
        guidance=str(attempt.get("guidance") or ""),
        state=state,
        review=review,
        change=_tool_results(body) if review else "",
        ours="\n".join((body.system, *texts)) if review else "",
    )


def _tool_results(body: Body) -> str:
    """What tools returned, all together."""
    blocks = (block for message in body.messages for block in message.blocks)
    return "\n".join(_text(block.get("content")) for block in blocks if block.get("type") == "tool_result")


def _turns(body: Body) -> list[PastTurn]:
    results = {
        str(block.get("tool_use_id")): Result(_text(block.get("content")), bool(block.get("is_error")))
        for message in body.messages
        for block in message.blocks
        if block.get("type") == "tool_result"
    }
    turns = []
    for message in body.messages:
        calls = [str(block.get("id")) for block in message.blocks if block.get("type") == "tool_use"]
        steps = [match for call in calls if (match := _STEP.fullmatch(call))]
        if steps and message.role == "assistant":
            turns.append(PastTurn(steps[0][1], int(steps[0][2]), tuple(results[call] for call in calls)))
    return turns


def _text(content: object) -> str:
    """The texts of a message or of a tool's result."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(str(item["text"]) for item in content if isinstance(item, dict) and "text" in item)


def _block(text: str, name: str, *, last: bool = False) -> Mapping[str, Any]:
    """The JSON object in `<name>…</name>`: the first one, or the last."""
    blocks = re.findall(rf"<{name}>(.*?)</{name}>", text, re.DOTALL)
    if not blocks:
        return {}
    try:
        data = parse_json(blocks[-1 if last else 0])
    except ValueError:
        return {}
    return data if isinstance(data, dict) else {}
