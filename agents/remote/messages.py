"""What an attempt on a node asks its manager for, and what it gets: JSON, parsed at the border on both ends.

The manager believes nothing of a request: it has this shape, or the node is not used any more. What is the same in each
request of a conversation comes first, because it does not travel twice.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from agents.models.answer import Answer, Request, ToolCall
from agents.models.cost.prices import ModelLimits
from fleet.core.base.json_text import parse_json
from fleet.core.base.usage import Usage
from fleet.core.state.facts import Failure
from fleet.ports.calls import CallRefusedError

LONGEST_SYSTEM = 4_000_000
MOST_MESSAGES = 20_000
MOST_BLOCKS = 20_000
MOST_TOOLS = 64
BODY = b"="
"""What a part begins with that is none of these documents, but of the body of an answer."""

Model = Annotated[str, Field(min_length=1, max_length=200)]
Parsed = TypeVar("Parsed", bound=BaseModel)


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Message(_Document):
    role: Literal["user", "assistant"]
    content: Annotated[list[Any], Field(min_length=1, max_length=MOST_BLOCKS)]

    @model_validator(mode="after")
    def _has_blocks(self) -> "_Message":
        if not all(isinstance(block, dict) and isinstance(block.get("type"), str) for block in self.content):
            raise ValueError("the content of a message is not made of blocks")
        return self


class Ask(_Document):
    """The next answer of a conversation; or, with `warm`, only that its prompt stays in the cache."""

    model: Model
    effort: Annotated[str, Field(max_length=40)] | None
    max_tokens: Annotated[int, Field(gt=0, le=1_000_000)]
    system: Annotated[str, Field(max_length=LONGEST_SYSTEM)]
    tools: Annotated[list[dict[str, Any]], Field(max_length=MOST_TOOLS)]
    shared: Annotated[int, Field(ge=0)]
    messages: Annotated[list[_Message], Field(min_length=1, max_length=MOST_MESSAGES)]
    previous: Annotated[str, Field(max_length=200)] | None
    turn: Annotated[int, Field(ge=1, le=100_000)]
    left_s: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """How long the conversation may still take."""
    warm: bool

    @model_validator(mode="after")
    def _shares_blocks(self) -> "Ask":
        if self.shared > len(self.messages[0].content) or self.messages[0].role != "user":
            raise ValueError("a conversation that can't begin like this")
        return self

    @property
    def request(self) -> Request:
        messages = tuple(message.model_dump() for message in self.messages)
        return Request(
            self.model,
            self.max_tokens,
            self.system,
            tuple(self.tools),
            messages,
            self.shared,
            effort=self.effort,
            previous=self.previous,
        )


class AskLimits(_Document):
    """What a model accepts."""

    limits_of: Model


class AskRelay(_Document):
    """A request of an agent in the box, which speaks HTTP."""

    method: Annotated[str, Field(max_length=20)]
    target: Annotated[str, Field(max_length=2_000)]
    headers: Annotated[dict[str, str], Field(max_length=16)]
    body: str


class Outcome(_Document):
    """The answer to `Ask`: one of these, and how long the conversation may still take."""

    answer: dict[str, Any] | None = None
    failure: dict[str, Any] | None = None
    draining: bool = False
    kept: bool = False
    """The prompt is still in the cache."""
    left_s: float | None = None
    """None: its time is over."""
    model: str = ""
    """The model that the conversation continues with."""


class Limits(_Document):
    """The answer to `AskLimits`."""

    limits: ModelLimits
    touches: int
    model: str
    """The model to begin with instead."""


class RelayHead(_Document):
    """How the answer to `AskRelay` begins. Its body follows, and then `RelayEnd`."""

    status: int
    headers: dict[str, str]


class RelayEnd(_Document):
    """What the relay knows by now of how the session went."""

    complete: bool
    refused: dict[str, Any] | None
    failure: dict[str, Any] | None
    drained: bool


def dump_request(request: Request, *, turn: int, left_s: float, warm: bool) -> bytes:
    """A request as `Ask`. What changes from turn to turn is behind what only grows."""
    return _json(
        {
            "model": request.model,
            "effort": request.effort,
            "max_tokens": max(1, request.max_tokens),
            "system": request.system,
            "tools": request.tools,
            "shared": request.shared,
            "messages": request.messages,
            "previous": request.previous,
            "turn": turn,
            "left_s": left_s,
            "warm": warm,
        }
    )


def load_asked(data: bytes) -> Ask | AskLimits | AskRelay:
    """What a node asks for. Raises `CallRefusedError`."""
    try:
        document = parse_json(data)
        if not isinstance(document, dict):
            raise CallRefusedError("its request is not an object")
        kind: type[Ask | AskLimits | AskRelay] = Ask
        if "limits_of" in document or "method" in document:
            kind = AskLimits if "limits_of" in document else AskRelay
        return kind.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "request"
        raise CallRefusedError(f"its request has another shape: {where}: {first['msg']}"[:300]) from None
    except ValueError:
        raise CallRefusedError("its request is not JSON") from None


def load(kind: type[Parsed], data: bytes) -> Parsed:
    """What a manager answers. Raises `ValueError`."""
    return kind.model_validate(parse_json(data))


def dump(document: BaseModel) -> bytes:
    return _json(document.model_dump())


def dump_answer(answer: Answer) -> dict[str, Any]:
    calls = [{"id": each.id, "name": each.name, "input": each.input, "problem": each.problem} for each in answer.calls]
    return {
        "blocks": answer.blocks,
        "stop_reason": answer.stop_reason,
        "usage": answer.usage.model_dump(),
        "model": answer.model,
        "request_id": answer.request_id,
        "seconds": answer.seconds,
        "calls": calls,
        "id": answer.id,
        "cache_miss": answer.cache_miss,
    }


def load_answer(document: Mapping[str, Any]) -> Answer:
    """Raises `ValueError`, `TypeError` or `KeyError`."""
    return Answer(
        **{
            **document,
            "blocks": tuple(document["blocks"]),
            "usage": Usage.model_validate(document["usage"]),
            "calls": tuple(ToolCall(**call) for call in document["calls"]),
        }
    )


def dump_failure(failure: Failure) -> dict[str, Any]:
    return failure.model_dump(mode="json")


def _json(document: object) -> bytes:
    """In plain characters: text of a model may hold half of one, which has no other form."""
    return json.dumps(document, ensure_ascii=True, separators=(",", ":")).encode()
