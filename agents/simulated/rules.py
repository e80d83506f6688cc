"""Validates requests with the SDK's types: unknown or missing parameters and wrong types are rejected.

The types are `TypedDict`s, for which pydantic accepts unknown keys. They are converted to strict pydantic models, with
unions of content blocks and tools distinguished by `type`.
"""

import json
import re
import types
from base64 import b64decode, b64encode
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import blake2b
from typing import Annotated, Any, Literal, Required, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, Tag, TypeAdapter, ValidationError, create_model
from pydantic import Discriminator as Discriminated

from agents.simulated.prompt import THINKING, PromptPiece, RequestError, as_blocks
from fleet.core.base.output import parse_json
from fleet.core.base.usage import Capability

BINDING_BETA = "thinking-binding-controls-2026-08-01"
_UNIONS = {Union, types.UnionType}
_CUSTOM = "custom"
"""The type of a tool without a `type`."""
_SAMPLING = ("temperature", "top_p", "top_k")
"""Parameters of older models, which newer models reject by name."""
_KEY = re.compile(r"(?!(?:str|int|float|bool|none)$)[a-z]\w*")
"""A key of a request, as opposed to a type name in pydantic's paths."""


class _Closed(BaseModel):
    """A part of a request. Unknown keys are rejected."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())


def check_shape(data: object, *, betas: frozenset[str], counting: bool = False) -> None:
    """Validate a request with the SDK's types. Raises `RequestError` with the path of the first problem."""
    if not isinstance(data, dict):
        raise RequestError("The request body is not a JSON object")
    data = _without_beta_controls(data, betas)
    try:
        _request(counting=counting).validate_python(data)
    except ValidationError as error:
        deepest = max(error.errors(include_url=False), key=lambda problem: len(problem["loc"]))
        path = ".".join(str(part) for part in deepest["loc"] if isinstance(part, int) or _KEY.fullmatch(part))
        raise RequestError(f"{path}: {_plain(deepest)}" if path else _plain(deepest)) from None


def _without_beta_controls(data: dict[str, Any], betas: frozenset[str]) -> dict[str, Any]:
    """Return the request without fields that require a beta header."""
    thinking = data.get("thinking")
    if BINDING_BETA not in betas or not isinstance(thinking, dict) or "block_binding" not in thinking:
        return data
    binding = thinking["block_binding"]
    behaviour = binding.get("prefix_mismatch_behavior") if isinstance(binding, dict) else ""
    if behaviour not in {None, "error", "drop_block"} or (isinstance(binding, dict) and len(binding) > 1):
        raise RequestError("thinking.block_binding.prefix_mismatch_behavior: Input should be 'error' or 'drop_block'")
    return {**data, "thinking": {key: value for key, value in thinking.items() if key != "block_binding"}}


def _plain(problem: Mapping[str, Any]) -> str:
    if problem["type"].startswith("union_tag"):
        return "Input should be an object of a known type"
    known = {"extra_forbidden": "Extra inputs are not permitted", "missing": "Field required"}
    return known.get(problem["type"], str(problem["msg"]))


# ---- models from the SDK's types ------------------------------------------------------------------------------------

_MADE = "fleet-"
"""Prefix of union tags, which are removed from paths."""


@cache
def _request(*, counting: bool) -> TypeAdapter[Any]:
    from anthropic.types import MessageCountTokensParams  # noqa: PLC0415 - the SDK takes a second to import
    from anthropic.types.message_create_params import MessageCreateParamsNonStreaming  # noqa: PLC0415

    made = _model(MessageCountTokensParams if counting else MessageCreateParamsNonStreaming)
    if not counting:  # fields of the other type, and those that the SDK sends as headers or older models support
        extra: dict[str, Any] = {
            "stream_": (bool, Field(default=False, alias="stream")),
            **{f"{name}_": (Any, Field(default=None, alias=name)) for name in _SAMPLING},
        }
        made = create_model("Request", __base__=made, **extra)
    return TypeAdapter(made)


@cache
def _model(shape: Any) -> type[BaseModel]:
    """Convert a `TypedDict` to a pydantic model."""
    fields: dict[str, Any] = {}
    for name, hint in get_type_hints(shape, include_extras=True).items():
        required = get_origin(hint) is Required or name in getattr(shape, "__required_keys__", ())
        default: Any = ... if required else None
        fields[f"{name}_"] = (_convert(hint), Field(default, alias=name))  # a name may be one of pydantic's
    return create_model(shape.__name__, __base__=_Closed, **fields)


def _is_shape(hint: Any) -> bool:
    """Whether a type is a `TypedDict` of any library."""
    return isinstance(hint, type) and hasattr(hint, "__required_keys__")


def _is_answer(hint: Any) -> bool:
    """Whether a type is one of the SDK's response types, which appear in unions with request types."""
    if isinstance(hint, type):
        return issubclass(hint, BaseModel)
    if get_origin(hint) is Annotated:
        return _is_answer(get_args(hint)[0])
    return get_origin(hint) in _UNIONS and all(map(_is_answer, get_args(hint)))


def _convert(hint: Any) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if _is_shape(hint):
        return _model(hint)
    if origin in _UNIONS:
        return _union(args)
    if origin in {Annotated, Required}:
        return _convert(args[0])
    if origin is Literal or hint in {str, int, float, bool, type(None)}:
        return hint
    if origin is dict:
        return dict[str, Any]
    if origin is not None and isinstance(origin, type) and issubclass(origin, Iterable) and args:
        return list.__class_getitem__(_convert(args[0]))
    return list[str] if getattr(hint, "__name__", "") == "SequenceNotStr" else Any


def _union(hints: tuple[Any, ...]) -> Any:
    """Convert a union, with tags if it has several `TypedDict`s."""
    args = [arg for arg in hints if not _is_answer(arg)]
    shapes = {tag: arg for arg in args if _is_shape(arg) for tag in _tags(arg)}
    if len(shapes) < 2 or len(shapes) < sum(map(_is_shape, args)):  # noqa: PLR2004 - nothing to distinguish, or no tags
        return Union[tuple(map(_convert, args))]  # noqa: UP007 - built while it runs
    cases = [Annotated[_model(shape), Tag(_MADE + tag)] for tag, shape in shapes.items()]
    tagged: Any = Annotated[Union[tuple(cases)], Discriminated(_tag)]  # noqa: UP007 - built while it runs
    others = [_convert(arg) for arg in args if not _is_shape(arg)]
    return Union[(tagged, *others)] if others else tagged


def _tags(shape: Any) -> list[str]:
    """Return the values of `type` or `role` of a `TypedDict`. Tools don't have to set `type`."""
    hints = get_type_hints(shape)
    for name in ("type", "role"):
        hint = hints.get(name)
        values = [value for value in _literals(hint) if isinstance(value, str)]
        if values:
            return values
    return []


def _literals(hint: Any) -> tuple[Any, ...]:
    if get_origin(hint) is Literal:
        return get_args(hint)
    return tuple(value for arg in get_args(hint) for value in _literals(arg))


def _tag(value: Any) -> str:
    if not isinstance(value, dict):
        return ""
    return _MADE + str(value.get("type") or value.get("role") or _CUSTOM)


# ---- turns -----------------------------------------------------------------------------------------------------------
# The order of messages: roles, and a result for every tool call.


MOST_MESSAGES = 100_000


def check_turns(messages: Sequence[Mapping[str, Any]]) -> None:
    """Check the order of messages. Raises `RequestError`."""
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
    """Check that results come first, one for each earlier call and in their order."""
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


# ---- lacking ---------------------------------------------------------------------------------------------------------
# Capabilities that a simulated service lacks: it rejects requests that use them, like a gateway with an older API.


_PARAMETERS: Mapping[str, Capability] = {
    "stream": "streaming",
    "diagnostics": "diagnostics",
    "output_config": "effort",
    "thinking": "thinking",
}
_UNKNOWN = "Extra inputs are not permitted"
TERSE = "The request could not be processed"
"""The error of a service that does not name the rejected field."""


def check_lacking(data: Mapping[str, Any], lacks: Collection[Capability], *, terse: bool) -> None:
    """Check for missing capabilities. Raises `RequestError` for the first one that a request uses."""
    for capability, message in _asked_for(data):
        if capability in lacks:
            raise RequestError(TERSE if terse else message)


def _asked_for(data: Mapping[str, Any]) -> Iterator[tuple[Capability, str]]:
    """Yield the capabilities that a request uses, with the error messages."""
    if data.get("max_tokens") == 0:
        yield "keep_alive", "max_tokens: must be greater than or equal to 1"
    for parameter, capability in _PARAMETERS.items():
        if data.get(parameter):
            yield capability, f"{parameter}: {_UNKNOWN}"
    for path, block in _blocks(data):
        if (mark := block.get("cache_control")) is not None:
            if isinstance(mark, dict) and "ttl" in mark:
                yield "cache_hour", f"{path}.cache_control.ttl: {_UNKNOWN}"
            yield "cache", f"{path}.cache_control: {_UNKNOWN}"
        if block.get("type") in THINKING:
            yield "thinking_history", f"{path}: Input tag {block['type']!r} does not match any of the expected tags"
    for index, tool in enumerate(data.get("tools") or ()):
        if tool.get("type", "custom") != "custom":
            yield "built_in_tools", f"tools.{index}: Input tag {tool['type']!r} does not match any of the expected tags"
        if tool.get("strict"):
            yield "strict_tools", f"tools.{index}.custom.strict: {_UNKNOWN}"


def _blocks(data: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every block that may have a cache mark, with its path."""
    groups = {"system": as_blocks(data.get("system")), "tools": data.get("tools") or ()}
    for number, message in enumerate(data.get("messages") or ()):
        groups[f"messages.{number}.content"] = as_blocks(message.get("content"))
    for name, blocks in groups.items():
        for index, block in enumerate(blocks):
            yield f"{name}.{index}", block


# ---- diagnostics -----------------------------------------------------------------------------------------------------
# Cache diagnostics: the first difference between a prompt and that of the previous request.


REMEMBERED = 20_000  # answers


@dataclass(frozen=True, slots=True)
class _Fingerprint:
    """The compared parts of a prompt."""

    model: str
    system: bytes
    tools: bytes
    messages: bytes
    length: int
    """The number of blocks in its messages."""
    tokens: int


class Fingerprints:
    """The prompts of the latest answers, by answer id."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Fingerprint] = OrderedDict()

    def remember(self, answer: str, model: str, pieces: Sequence[PromptPiece], tokens: int) -> None:
        self._known[answer] = _fingerprint(model, pieces, tokens)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)

    def compare(self, asked: object, model: str, pieces: Sequence[PromptPiece]) -> dict[str, Any] | None:
        """Return the `diagnostics` of an answer; None if they were not requested or the prompt only grew."""
        previous = asked.get("previous_message_id") if isinstance(asked, dict) else None
        if previous is None:
            return None
        before = self._known.get(previous)
        if before is None:
            return {"cache_miss_reason": {"type": "previous_message_not_found"}}
        now = _fingerprint(model, pieces, 0, first=before.length)
        for name in ("model", "system", "tools", "messages"):
            if getattr(before, name) != getattr(now, name):
                reason = {"type": f"{name}_changed", "cache_missed_input_tokens": before.tokens}
                return {"cache_miss_reason": reason}
        return None


def _fingerprint(model: str, pieces: Sequence[PromptPiece], tokens: int, *, first: int | None = None) -> _Fingerprint:
    """Return the fingerprint of a prompt with the `first` blocks of its messages."""
    top = {role: [piece for piece in pieces if piece.path.startswith(f"{role}.")] for role in ("system", "tools")}
    messages = [piece for piece in pieces if piece.path.startswith("messages.")]
    counted = messages if first is None else messages[:first]
    return _Fingerprint(model, _digest(top["system"]), _digest(top["tools"]), _digest(counted), len(counted), tokens)


def _digest(pieces: Sequence[PromptPiece]) -> bytes:
    digest = blake2b(digest_size=16)
    for piece in pieces:
        digest.update(f"{piece.role}\0{piece.text}\0".encode("utf-8", "surrogatepass"))
    return digest.digest()


# ---- thinking --------------------------------------------------------------------------------------------------------
# Preserved thinking: each thinking block is signed with everything before it, and checked when it is sent back.
#
# Two checks: a block that the model can't read is dropped silently, and everything before a block, including other
# thinking blocks, must be unchanged. The signature contains all data for these checks, so the service is stateless.


Reason = Literal["model_binding_mismatch", "prefix_binding_mismatch"]
_SECRET = b"the simulated service's own key"
_DIGEST = 12  # bytes


@dataclass(frozen=True, slots=True)
class ConnectionDropped:
    """A thinking block that the model does not see."""

    path: str
    reason: Reason

    def record(self) -> dict[str, str]:
        return {"type": "thinking_dropped", "path": self.path, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Binding:
    """The data to which the thinking of the next answer is bound."""

    prefix: str
    """A digest of everything before it, without thinking."""
    previous: str
    """The signature of the previous thinking block, or empty."""
    dropped: tuple[ConnectionDropped, ...] = ()


@dataclass(frozen=True, slots=True)
class _Claims:
    """The content of a signature."""

    model: str
    prefix: str
    previous: str
    content: str
    id: str = field(compare=False, default="")


def check_thinking(pieces: Sequence[PromptPiece], reader: str, *, drop: bool) -> Binding:
    """Check all thinking blocks. Raises `RequestError` if one is bound elsewhere and may not be dropped."""
    running, last, dropped = blake2b(digest_size=_DIGEST), "", list[ConnectionDropped]()
    for piece in pieces:
        if not piece.is_thinking:
            running.update(f"{piece.role}\0{piece.text}\0".encode("utf-8", "surrogatepass"))
            continue
        claims = _claims(piece)
        if claims.model != reader:
            dropped.append(ConnectionDropped(piece.path, "model_binding_mismatch"))
        elif claims.prefix != running.hexdigest() or (last and claims.previous != last):
            if not drop:
                raise RequestError(
                    f"{piece.path}: Invalid `signature` in `thinking` block. The block is bound to a different "
                    "conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "
                    '"drop_block".'
                )
            dropped.append(ConnectionDropped(piece.path, "prefix_binding_mismatch"))
        else:
            last = claims.id
    return Binding(running.hexdigest(), last, tuple(dropped))


def sign(model: str, binding: Binding, content: str) -> str:
    """Return the signature of a thinking block with this content."""
    claims = {
        "model": model,
        "prefix": binding.prefix,
        "previous": binding.previous,
        "content": _thought_digest(content),
    }
    return b64encode(json.dumps([claims, _seal(claims)]).encode()).decode()


def signed_id(signature: str) -> str:
    """Return the id by which a later thinking block refers to this one."""
    return _seal(parse_json(b64decode(signature))[0])


def _claims(piece: PromptPiece) -> _Claims:
    """Parse the signature of a block. Raises `RequestError` if the block is not from the service or was changed."""
    redacted = piece.type == "redacted_thinking"
    signature = piece.block["data"] if redacted else piece.block["signature"]
    try:
        claims, seal = parse_json(b64decode(signature, validate=True))
        intact = seal == _seal(claims) and claims["content"] == _thought_digest(
            "" if redacted else piece.block["thinking"]
        )
        if intact:
            return _Claims(**claims, id=seal)
    except (ValueError, TypeError, KeyError):
        pass
    raise RequestError(f"{piece.path}: Invalid `signature` in `thinking` block")


def _thought_digest(content: str) -> str:
    return blake2b(content.encode("utf-8", "surrogatepass"), digest_size=_DIGEST).hexdigest()


def _seal(claims: dict[str, Any]) -> str:
    text = json.dumps(claims, sort_keys=True)
    return blake2b(text.encode(), key=_SECRET, digest_size=_DIGEST).hexdigest()


# ---- catalogue -------------------------------------------------------------------------------------------------------
# The available models: their parameters, capabilities and prices.
#
# The figures are independent of fleet's price table, so that tests reveal a mistake in either.


EFFORTS = ("low", "medium", "high", "xhigh", "max")
_RELEASED = "2026-10-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Rates:
    """Dollars per million tokens. Cache writes cost a multiple of the input price."""

    input: float
    output: float
    read: float
    written: float = 1.25
    """The factor for cache writes for five minutes."""
    written_for_an_hour: float = 2.0
    band_tokens: int | None = None
    """A call with a longer prompt costs `band_factor` times as much, including its answer."""
    band_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class ModelRules:
    """The rules of a model."""

    id: str
    name: str
    line: str
    rates: Rates = field(default_factory=lambda: Rates(1.0, 5.0, 0.1))
    context_tokens: int = 1_000_000
    output_tokens: int = 128_000
    cache_minimum_tokens: int = 512
    effort: str = "medium"
    """The default effort."""
    thinking_types: frozenset[str] = frozenset({"adaptive", "disabled", "between_tools"})

    def info(self) -> dict[str, Any]:
        """Return the answer to `GET /v1/models`."""

        def supported(*, yes: bool = True) -> dict[str, bool]:
            return {"supported": yes}

        kinds = ("adaptive", "between_tools", "disabled", "enabled")
        capabilities = {
            **{name: supported() for name in ("batch", "citations", "code_execution", "image_input", "pdf_input")},
            "structured_outputs": supported(),
            "effort": {"supported": True, **{effort: supported() for effort in EFFORTS}},
            "thinking": {
                "supported": True,
                "types": {kind: supported(yes=kind in self.thinking_types) for kind in kinds},
            },
            "context_management": {"supported": False},
            "server_tools": {
                "supported": False,
                "code_execution": supported(yes=False),
                "web_search": supported(yes=False),
            },
        }
        return {
            "type": "model",
            "id": self.id,
            "display_name": self.name,
            "line": self.line,
            "lifecycle": "active",
            "created_at": _RELEASED,
            "max_input_tokens": self.context_tokens,
            "max_tokens": self.output_tokens,
            "capabilities": capabilities,
        }


MODELS = {
    rules.id: rules
    for rules in (
        ModelRules(
            "claude-opus-5-5",
            "Claude Opus 5.5",
            "opus",
            rates=Rates(4.0, 20.0, 0.20),
            thinking_types=frozenset({"adaptive"}),
        ),
        ModelRules("claude-sonnet-5-5", "Claude Sonnet 5.5", "sonnet", rates=Rates(2.0, 10.0, 0.10), effort="high"),
        ModelRules(
            "claude-haiku-5-5",
            "Claude Haiku 5.5",
            "haiku",
            rates=Rates(0.10, 0.50, 0.01, band_tokens=100_000, band_factor=5.0),
        ),
    )
}
_OTHER = ModelRules("", "", "", context_tokens=200_000)


def model_rules(model: str, offered: tuple[str, ...] | None) -> ModelRules:
    """Return the rules of a model. Raises `RequestError` if it does not exist or is not among those `offered`."""
    if model not in (MODELS if offered is None else offered):
        raise RequestError(f"model: {model}", 404)
    return MODELS.get(model) or replace(_OTHER, id=model, name=model, line=model)


def check_parameters(data: dict[str, Any], rules: ModelRules) -> None:
    """Check for parameters that the newest models reject. Raises `RequestError`."""
    if data["messages"][-1]["role"] == "assistant":
        raise RequestError("messages: This model does not support assistant message prefill.")
    choice = data.get("tool_choice")
    if choice is not None and choice.get("type") not in {"auto", "none"}:
        raise RequestError("tool_choice: This model does not support forcing the use of a tool.")
    for name in ("temperature", "top_p", "top_k"):
        if data.get(name) is not None:
            raise RequestError(f"{name}: This model does not support sampling parameters.")
    most, asked = rules.output_tokens, data.get("max_tokens") or 0
    if asked < 0:
        raise RequestError("max_tokens: must be greater than or equal to 0")
    if asked > most:
        text = f"max_tokens: {asked} > {most}, which is the maximum allowed number of output tokens for {rules.id}"
        raise RequestError(text)
    thinking = (data.get("thinking") or {}).get("type", "adaptive")
    if thinking not in rules.thinking_types:
        raise RequestError(f"thinking.type: {rules.id} does not support {thinking!r}")


def dollars(rules: ModelRules, usage: dict[str, Any]) -> float:
    """Return the price of an answer with this usage."""
    rates, cached = rules.rates, usage["cache_creation"]
    prompt = usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["cache_creation_input_tokens"]
    factor = rates.band_factor if rates.band_tokens is not None and prompt > rates.band_tokens else 1.0
    cost: float = (
        usage["input_tokens"] * rates.input
        + usage["cache_read_input_tokens"] * rates.read
        + cached["ephemeral_5m_input_tokens"] * rates.input * rates.written
        + cached["ephemeral_1h_input_tokens"] * rates.input * rates.written_for_an_hour
        + usage["output_tokens"] * rates.output
    )
    return cost * factor / 1_000_000
