"""The messages of the protocol, parsed strictly: unknown, missing and oversized fields are errors.

Headers are small. Large data (orders, events, packs) goes into the binary parts of a frame.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Annotated, ClassVar, Literal, TypeVar, assert_never

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from fleet.core.base.ids import RunId, Sha, SubtaskId
from fleet.core.base.output import parse_json
from fleet.core.facts.fact_parts import Instruction
from fleet.core.facts.facts import CheckRun, Failure, RanTests, Report, SetupRun
from fleet.core.plans.plan import Criterion, Effort, Subtask
from fleet.features.nodes.node_orders import AttemptDone, ChecksDone, NumberedEvent, OrderFailed
from fleet.ports.agents import WorkerBrief
from fleet.ports.operator import SILENT, GivenOperator
from fleet.ports.orders import AttemptOrder, ChecksOrder, Order, WorkerFinished, WorktreeReady

# ---- frames ----------------------------------------------------------------------------------------------------------
# Frames carry messages over a byte stream. This part does not do I/O, and its input may be hostile.
#
# A frame consists of two lengths (four bytes each, big-endian), a JSON header, and a body of binary parts that the
# header describes. A length above its limit is rejected before the data is buffered.


LENGTHS = 8
LONGEST_HEADER = 64 * 1024
LONGEST_BODY = 96 * 1024 * 1024
MOST_PARTS = 16


class FrameError(ValueError):
    """The other side violated the protocol. The message describes how."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One encoded message."""

    header: dict[str, object]
    parts: tuple[bytes, ...] = ()


def encode(frame: Frame) -> bytes:
    """Encode a frame. Raises `FrameError` if it exceeds a limit of the other side."""
    sizes = [len(part) for part in frame.parts]
    header = json.dumps({**frame.header, "parts": sizes} if sizes else frame.header, separators=(",", ":")).encode()
    if len(header) > LONGEST_HEADER or sum(sizes) > LONGEST_BODY or len(sizes) > MOST_PARTS:
        raise FrameError(f"message too long to send: header of {len(header)} bytes, body of {sum(sizes)} bytes")
    return b"".join((len(header).to_bytes(4), sum(sizes).to_bytes(4), header, *frame.parts))


@dataclass(slots=True)
class Decoder:
    """Decodes frames from chunks of bytes."""

    longest_body: int = LONGEST_BODY
    _bytes: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Add bytes and yield the frames they complete. Raises `FrameError`."""
        self._bytes += data
        while len(self._bytes) >= LENGTHS:
            header_size, body_size = int.from_bytes(self._bytes[:4]), int.from_bytes(self._bytes[4:LENGTHS])
            if not 0 < header_size <= LONGEST_HEADER:
                raise FrameError(f"a header of {header_size} bytes exceeds the limit of {LONGEST_HEADER}")
            if body_size > self.longest_body:
                raise FrameError(f"a body of {body_size} bytes exceeds the limit of {self.longest_body}")
            end = LENGTHS + header_size + body_size
            if len(self._bytes) < end:
                return
            header = _header(bytes(self._bytes[LENGTHS : LENGTHS + header_size]))
            body = bytes(self._bytes[LENGTHS + header_size : end])
            del self._bytes[:end]
            yield Frame(header, tuple(_parts(header, body)))

    @property
    def is_between_frames(self) -> bool:
        return not self._bytes


def _header(data: bytes) -> dict[str, object]:
    try:
        header = parse_json(data)
    except ValueError as error:
        raise FrameError("a header is not JSON") from error
    if not isinstance(header, dict):
        raise FrameError("a header is not a JSON object")
    return header


def _parts(header: dict[str, object], body: bytes) -> Iterator[bytes]:
    sizes = header.pop("parts", [])
    if not isinstance(sizes, list) or len(sizes) > MOST_PARTS or not all(map(_is_size, sizes)):
        raise FrameError("the part sizes in a header are invalid")
    if sum(sizes) != len(body):
        raise FrameError(f"the parts have {sum(sizes)} bytes, but the body has {len(body)} bytes")
    at = 0
    for size in sizes:
        yield body[at : at + size]
        at += size


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


# ---- messages --------------------------------------------------------------------------------------------------------


PROTOCOL = 3
MOST_NAMED = 256  # commits or keys per message
MOST_ASKED = 1_000_000  # calls per attempt
MOST_ANSWER_PARTS = 1_000_000

Text = Annotated[str, Field(max_length=2_000)]
Key = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9._/-]+$")]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,80}$")]
Commit = Annotated[Sha, Field(pattern=r"^(?:[0-9a-f]{40}|[0-9a-f]{64})$")]


class NodeMessage(BaseModel):
    """A header. `PARTS` is the number of its binary parts."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    PARTS: ClassVar[int] = 0


# ---- from the manager


class Open(NodeMessage):
    """Open a connection for a run. Its part holds the terms. The answer is `OrderOpened` or `OrderRefused`."""

    PARTS = 1
    type: Literal["open"] = "open"
    protocol: int
    version: Text
    run: Name
    repository: Name
    object_format: Literal["sha1", "sha256"]
    base: Commit
    lease_s: float = Field(gt=0, le=86_400)


class ObjectPack(NodeMessage):
    """Send a part of a pack with a commit, on top of the node's commits. The last part is answered with `Stored`."""

    PARTS = 1
    type: Literal["objects"] = "objects"
    commit: Commit
    last: bool


class Start(NodeMessage):
    """Start an order if it has not started yet. Its part is the order."""

    PARTS = 1
    type: Literal["start"] = "start"
    key: Key


class Follow(NodeMessage):
    """Follow the events of an order, starting at a number."""

    type: Literal["follow"] = "follow"
    key: Key
    since: int = Field(ge=0, le=1_000)


class Cancel(NodeMessage):
    """Cancel an order. Its report states that it was canceled."""

    type: Literal["cancel"] = "cancel"
    key: Key


class Acknowledge(NodeMessage):
    """Confirm the report of an order, so that the node can delete it."""

    type: Literal["acknowledge"] = "acknowledge"
    key: Key


class ModelAnswer(NodeMessage):
    """A part of the answer to a call, by number. If the node repeats the call, all parts are sent again."""

    PARTS = 1
    type: Literal["answer"] = "answer"
    key: Key
    number: int = Field(ge=0, le=MOST_ASKED)
    at: int = Field(ge=0, le=MOST_ANSWER_PARTS)
    last: bool


class Instruct(NodeMessage):
    """An instruction for an attempt, by number. Its part is the instruction. A node skips known instructions."""

    PARTS = 1
    type: Literal["instruct"] = "instruct"
    key: Key
    number: int = Field(ge=0, le=1_000)


class Heartbeat(NodeMessage):
    """A heartbeat. The manager sends the next one after the node has answered the previous one."""

    type: Literal["beat"] = "beat"
    number: int = Field(ge=0)


class Inspect(NodeMessage):
    """Inspect the node's data for all runs. Sent instead of `open`, and answered with `Inspected`."""

    type: Literal["inspect"] = "inspect"


class Clean(NodeMessage):
    """Delete unused caches and reports. Sent instead of `open`, and answered with `CleanupDone`."""

    type: Literal["clean"] = "clean"
    repository: Annotated[str, Field(pattern=r"^(?:[A-Za-z0-9][A-Za-z0-9._-]{0,80})?$")] = ""
    """The cache to delete, or empty for all."""


# ---- from the node


class Greeting(NodeMessage):
    """The first message: the node's version and resources."""

    type: Literal["greeting"] = "greeting"
    protocol: int
    version: Text
    host: Text
    processors: int = Field(ge=1, le=100_000)
    memory_bytes: int = Field(ge=0)
    time: float
    """The node's clock, in seconds since the epoch."""
    problems: Annotated[tuple[Text, ...], Field(max_length=32, strict=False)] = ()
    """The problems that `fleet doctor` finds on the node."""


class OrderOpened(NodeMessage):
    """The node is ready for orders."""

    type: Literal["opened"] = "opened"
    commits: Annotated[tuple[Commit, ...], Field(max_length=MOST_NAMED, strict=False)]
    """The commits in its cache."""
    orders: Annotated[tuple[Key, ...], Field(max_length=MOST_NAMED, strict=False)]
    """The orders of this run on the node, finished or running."""
    lacks: Annotated[tuple[Name, ...], Field(max_length=MOST_NAMED, strict=False)] = ()
    """The workers whose program is not installed on the node."""


class OrderRefused(NodeMessage):
    """The node rejects a request. If it rejects `Open`, it closes the stream."""

    type: Literal["refused"] = "refused"
    why: Text


class Stored(NodeMessage):
    """The objects of a commit are stored, or why they are not."""

    type: Literal["stored"] = "stored"
    commit: Commit
    why: Text = ""


class NodeEvent(NodeMessage):
    """An event of an order. Parts: the event as JSON, then the pack and transcript of a report, else empty."""

    PARTS = 3
    type: Literal["event"] = "event"
    key: Key
    number: int = Field(ge=0, le=1_000)


class Unknown(NodeMessage):
    """The node does not have an order with this key."""

    type: Literal["unknown"] = "unknown"
    key: Key


class ModelCall(NodeMessage):
    """A model call of an attempt. Parts: the request, and the transcript since the previous call.

    A call without a complete answer is repeated under its number when its order is followed over a new connection.
    """

    PARTS = 2
    type: Literal["call"] = "call"
    key: Key
    number: int = Field(ge=0, le=MOST_ASKED)


class DropAttempt(NodeMessage):
    """The answer to a call is complete or no longer needed, so the manager can drop it."""

    type: Literal["drop"] = "drop"
    key: Key
    number: int = Field(ge=0, le=MOST_ASKED)


class Read(NodeMessage):
    """The number of instructions that the next call of an attempt includes."""

    type: Literal["read"] = "read"
    key: Key
    count: int = Field(ge=1, le=1_000)


class Inspected(NodeMessage):
    """The data on the node."""

    type: Literal["inspected"] = "inspected"
    attempts: int = Field(ge=0)
    """The number of running attempts."""
    checks: int = Field(ge=0)
    """The number of running check orders."""
    reports: int = Field(ge=0)
    """The number of finished reports that were not fetched yet."""
    repositories: int = Field(ge=0)
    """The number of cached repositories."""
    commits: int = Field(ge=0)
    """The number of commits in the caches."""
    bytes: int = Field(ge=0)
    """The disk space used by caches and reports."""


class CleanupDone(NodeMessage):
    """The result of cleaning."""

    type: Literal["cleaned"] = "cleaned"
    bytes: int = Field(ge=0)
    in_use: int = Field(ge=0)
    """The number of caches kept because a run uses them."""


FromManager = (
    Open | ObjectPack | Start | Follow | ModelAnswer | Instruct | Cancel | Acknowledge | Heartbeat | Inspect | Clean
)
FromNode = (
    Greeting
    | OrderOpened
    | OrderRefused
    | Stored
    | NodeEvent
    | ModelCall
    | DropAttempt
    | Read
    | Unknown
    | Heartbeat
    | Inspected
    | CleanupDone
)
AnyMessage = TypeVar("AnyMessage", bound=NodeMessage)
_manager: TypeAdapter[FromManager] = TypeAdapter(Annotated[FromManager, Field(discriminator="type")])
_node: TypeAdapter[FromNode] = TypeAdapter(Annotated[FromNode, Field(discriminator="type")])


def to_frame(message: NodeMessage, *parts: bytes) -> Frame:
    return Frame(message.model_dump(mode="json"), parts)


def from_manager(frame: Frame) -> FromManager:
    """Parse a message from a manager. Raises `FrameError`."""
    return _parsed(_manager, frame)


def from_node(frame: Frame) -> FromNode:
    """Parse a message from a node. Raises `FrameError`."""
    return _parsed(_node, frame)


def _parsed(adapter: TypeAdapter[AnyMessage], frame: Frame) -> AnyMessage:
    try:
        message = adapter.validate_python(frame.header)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "a header"
        raise FrameError(f"{where}: {first['msg']}"[:500]) from None
    if len(frame.parts) != message.PARTS:
        raise FrameError(f"{type(message).__name__} has {len(frame.parts)} parts, expected {message.PARTS}")
    return message


# ---- payloads --------------------------------------------------------------------------------------------------------
# Orders and events as JSON, parsed at the border. Reports of a node are untrusted, so their size is limited here.


LONGEST_ORDER = 32 * 1024 * 1024
LONGEST_EVENT = 16 * 1024 * 1024
LONGEST_TRANSCRIPT = 8 * 1024 * 1024
LONGEST_INSTRUCTION = 1024 * 1024
LONGEST_LOG = 3 * 1024 * 1024
LONGEST_LOGS = 16 * 1024 * 1024
"""The limit for all logs of one report."""
MOST_CHECKS = 10_000
MOST_SETUPS = 64
SHOWN = 300


class _Payload(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class _Brief(_Payload):
    """A worker's brief, with the operator's instructions so far. Later instructions are sent as they come."""

    run: RunId
    subtask: Subtask
    attempt: int
    model: str | None
    effort: Effort | None = None
    guidance: str = ""
    failures: tuple[tuple[int, Failure], ...] = ()
    results: tuple[tuple[SubtaskId, Report], ...] = ()
    layout: str = ""
    notes: str = ""
    told: tuple[Instruction, ...] = ()


class _AttemptOrder(_Payload):
    base: Sha
    worker: str
    brief: _Brief


class _ChecksOrder(_Payload):
    commit: Sha
    criteria: tuple[Criterion, ...]
    lands: bool = False


class _Order(_Payload):
    """Either an attempt or checks."""

    attempt: _AttemptOrder | None = None
    checks: _ChecksOrder | None = None


class _Attempt(_Payload):
    report: Report | None = None
    failure: Failure | None = None
    commit: Sha | None = None
    refused: Failure | None = None


class _Checks(_Payload):
    runs: Annotated[tuple[CheckRun, ...], Field(max_length=MOST_CHECKS)]
    setups: Annotated[tuple[SetupRun, ...], Field(max_length=MOST_SETUPS)] = ()
    tests: Annotated[tuple[RanTests | None, ...], Field(max_length=MOST_CHECKS)]
    """The tests that their runners reported, which `CheckRun` does not include."""


class _NotDone(_Payload):
    failure: Failure
    setup: CheckRun | None = None


class _Event(_Payload):
    """An event with one of these fields set."""

    began: bool = False
    worked: bool = False
    attempt: _Attempt | None = None
    checks: _Checks | None = None
    not_done: _NotDone | None = None
    logs: dict[str, Annotated[int, Field(ge=0, le=LONGEST_LOG)]] = {}
    """The sizes of the logs, in the order they are appended."""


Payload = TypeVar("Payload")
_orders, _events, _instructions = TypeAdapter(_Order), TypeAdapter(_Event), TypeAdapter(Instruction)


def dump_order(order: Order) -> bytes:
    """Encode an order."""
    if isinstance(order, ChecksOrder):
        checks = _ChecksOrder(commit=order.commit, criteria=order.criteria, lands=order.lands)
        return _orders.dump_json(_Order(checks=checks))
    values = {name: getattr(order.brief, name) for name in _Brief.model_fields if name != "told"}
    brief = _Brief(**values, told=tuple(order.brief.operator.told()))
    return _orders.dump_json(_Order(attempt=_AttemptOrder(base=order.base, worker=order.worker, brief=brief)))


def load_order(data: bytes) -> Order:
    """Decode an order. Raises `FrameError`."""
    order = _load(_orders, data, LONGEST_ORDER, "an order")
    if order.checks is not None and order.attempt is None:
        return ChecksOrder(order.checks.commit, order.checks.criteria, order.checks.lands)
    if order.attempt is None or order.checks is not None:
        raise FrameError("an order must be either an attempt or checks")
    found = order.attempt.brief
    values = {name: getattr(found, name) for name in _Brief.model_fields if name != "told"}
    brief = WorkerBrief(**values, operator=GivenOperator(found.told) if found.told else SILENT)
    return AttemptOrder(order.attempt.base, order.attempt.worker, brief)


def dump_instruction(instruction: Instruction) -> bytes:
    return _instructions.dump_json(instruction)


def load_instruction(data: bytes) -> Instruction:
    """Decode an instruction. Raises `FrameError`."""
    return _load(_instructions, data, LONGEST_INSTRUCTION, "an instruction")


def dump_event(event: NumberedEvent) -> tuple[bytes, bytes, bytes]:
    """Encode an event: JSON, the pack of an attempt's report, and last its transcript or the logs of other reports."""
    pack = last = b""
    match event:
        case WorktreeReady():
            payload = _Event(began=True)
        case WorkerFinished():
            payload = _Event(worked=True)
        case AttemptDone(outcome=outcome):
            report, failure = (outcome, None) if isinstance(outcome, Report) else (None, outcome)
            attempt = _Attempt(report=report, failure=failure, commit=event.commit, refused=event.refused)
            payload, pack, last = _Event(attempt=attempt), event.pack, event.transcript
        case ChecksDone(runs=runs, logs=logs):
            checks = _Checks(runs=runs, tests=tuple(run.ran_tests for run in runs), setups=event.setups)
            payload, last = _Event(checks=checks, logs=_sizes(logs)), b"".join(logs.values())
        case OrderFailed(logs=logs):
            not_done = _NotDone(failure=event.failure, setup=event.setup)
            payload, last = _Event(not_done=not_done, logs=_sizes(logs)), b"".join(logs.values())
        case _:
            assert_never(event)
    return _events.dump_json(payload, exclude_defaults=True), pack, last


def _sizes(logs: Mapping[str, bytes]) -> dict[str, int]:
    return {name: len(text) for name, text in logs.items()}


def load_event(data: bytes, pack: bytes = b"", last: bytes = b"") -> NumberedEvent:
    """Decode an event. Raises `FrameError`."""
    event = _load(_events, data, LONGEST_EVENT, "an event")
    if event.attempt is not None:
        return _attempt(event.attempt, pack, last)
    if event.checks is not None:
        return _checks(event.checks, _logs(event.logs, last))
    if event.not_done is not None:
        return OrderFailed(event.not_done.failure, event.not_done.setup, _logs(event.logs, last))
    if event.began or event.worked:
        return WorktreeReady() if event.began else WorkerFinished()
    raise FrameError("an event is empty")


def _attempt(attempt: _Attempt, pack: bytes, transcript: bytes) -> AttemptDone:
    outcome = attempt.report or attempt.failure
    if len(transcript) > LONGEST_TRANSCRIPT:
        raise FrameError(f"a transcript of {len(transcript)} bytes exceeds the limit of {LONGEST_TRANSCRIPT}")
    if outcome is None or (attempt.commit is None) == (attempt.refused is None):
        raise FrameError("the report of an attempt is incomplete or contradictory")
    return AttemptDone(outcome, attempt.commit, attempt.refused, pack, transcript)


def _logs(sizes: Mapping[str, int], data: bytes) -> dict[str, bytes]:
    if len(data) > LONGEST_LOGS or sum(sizes.values()) != len(data):
        raise FrameError(f"logs of {len(data)} bytes exceed the limit of {LONGEST_LOGS} or don't match their sizes")
    ends = accumulate(sizes.values())
    return {name: data[end - size : end] for (name, size), end in zip(sizes.items(), ends, strict=True)}


def _checks(checks: _Checks, logs: Mapping[str, bytes]) -> ChecksDone:
    if len(checks.runs) != len(checks.tests):
        raise FrameError("the report of checks has different numbers of tests and checks")
    pairs = zip(checks.runs, checks.tests, strict=True)
    runs = tuple(run.model_copy(update={"ran_tests": tests}) for run, tests in pairs)
    return ChecksDone(runs, checks.setups, logs)


def _load(adapter: TypeAdapter[Payload], data: bytes, longest: int, what: str) -> Payload:
    if len(data) > longest:
        raise FrameError(f"{what} of {len(data)} bytes exceeds the limit of {longest}")
    try:
        return adapter.validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise FrameError(f"{what}: {'.'.join(map(str, first['loc']))}: {first['msg']}"[:SHOWN]) from None
