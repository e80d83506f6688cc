"""The messages of the protocol, parsed at the border: a field too many, too few or too long is an error.

Headers are small. What may be large (orders, events, packs) is a binary part of its frame.
"""

from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from fleet.nodes.frames import Frame, FrameError
from fleet.ports.calls import LONGEST_REQUEST

PROTOCOL = 2
MOST_NAMED = 256  # commits or keys that one message names
MOST_ASKED = 1_000_000  # calls of one attempt
MOST_ANSWER_PARTS = 1_000_000

Text = Annotated[str, Field(max_length=2_000)]
Key = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9._/-]+$")]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,80}$")]
Commit = Annotated[str, Field(pattern=r"^(?:[0-9a-f]{40}|[0-9a-f]{64})$")]


class Message(BaseModel):
    """A header. `PARTS` is the number of binary parts that belong to it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    PARTS: ClassVar[int] = 0


# ---- from the manager


class Open(Message):
    """The run that this connection works for; its part holds the terms. The answer is `Opened` or `Refused`."""

    PARTS = 1
    type: Literal["open"] = "open"
    protocol: int
    version: Text
    run: Name
    repository: Name
    object_format: Literal["sha1", "sha256"]
    base: Commit
    lease_s: float = Field(gt=0, le=86_400)


class Objects(Message):
    """A part of a pack that holds a commit, on top of commits that the node has. The answer to the last is `Stored`."""

    PARTS = 1
    type: Literal["objects"] = "objects"
    commit: Commit
    last: bool


class Start(Message):
    """Begin an order, unless it was begun already. Its part is the order."""

    PARTS = 1
    type: Literal["start"] = "start"
    key: Key


class Follow(Message):
    """Send the events of an order from a number on, and go on as they happen."""

    type: Literal["follow"] = "follow"
    key: Key
    since: int = Field(ge=0, le=1_000)


class Cancel(Message):
    """Stop an order. It ends with a report that says so."""

    type: Literal["cancel"] = "cancel"
    key: Key


class Acknowledge(Message):
    """The report of an order has arrived: the node may forget it."""

    type: Literal["acknowledge"] = "acknowledge"
    key: Key


class Answer(Message):
    """A part of the answer to a call, by its number. Sent from the first part on to a node that asks again."""

    PARTS = 1
    type: Literal["answer"] = "answer"
    key: Key
    number: int = Field(ge=0, le=MOST_ASKED)
    at: int = Field(ge=0, le=MOST_ANSWER_PARTS)
    last: bool


class Instruct(Message):
    """What the operator tells an attempt, by its number; its part is the instruction. A node skips what it has."""

    PARTS = 1
    type: Literal["instruct"] = "instruct"
    key: Key
    number: int = Field(ge=0, le=1_000)


class Beat(Message):
    """A sign of life. The manager sends the next one only after the node has answered the one before."""

    type: Literal["beat"] = "beat"
    number: int = Field(ge=0)


class Inspect(Message):
    """What the node holds, of all runs. In place of `open`; the answer is `Inspected`."""

    type: Literal["inspect"] = "inspect"


class Clean(Message):
    """Delete caches and reports that no run uses. In place of `open`; the answer is `Cleaned`."""

    type: Literal["clean"] = "clean"
    repository: Annotated[str, Field(pattern=r"^(?:[A-Za-z0-9][A-Za-z0-9._-]{0,80})?$")] = ""
    """The only cache to delete; empty: all."""


# ---- from the node


class Greeting(Message):
    """The first message of all: what speaks, and what it offers."""

    type: Literal["greeting"] = "greeting"
    protocol: int
    version: Text
    host: Text
    processors: int = Field(ge=1, le=100_000)
    memory_bytes: int = Field(ge=0)
    time: float
    """The node's clock, in seconds since the epoch."""
    problems: Annotated[tuple[Text, ...], Field(max_length=32, strict=False)] = ()
    """What `fleet doctor` finds there that keeps it from working."""


class Opened(Message):
    """The node is ready for orders."""

    type: Literal["opened"] = "opened"
    commits: Annotated[tuple[Commit, ...], Field(max_length=MOST_NAMED, strict=False)]
    """Commits whose objects it has."""
    orders: Annotated[tuple[Key, ...], Field(max_length=MOST_NAMED, strict=False)]
    """Orders of this run that it still holds: finished, or at work."""
    lacks: Annotated[tuple[Name, ...], Field(max_length=MOST_NAMED, strict=False)] = ()
    """Workers whose program is not installed there."""


class Refused(Message):
    """The node does not do what it was asked; after `Open` it closes the stream."""

    type: Literal["refused"] = "refused"
    why: Text


class Stored(Message):
    """The objects of a commit are there; or why not."""

    type: Literal["stored"] = "stored"
    commit: Commit
    why: Text = ""


class Event(Message):
    """Something happened to an order. Parts: the event as JSON; of a report, its pack and transcript, else empty."""

    PARTS = 3
    type: Literal["event"] = "event"
    key: Key
    number: int = Field(ge=0, le=1_000)


class Unknown(Message):
    """The node holds no order of this key."""

    type: Literal["unknown"] = "unknown"
    key: Key


class Call(Message):
    """An attempt asks for a call to a model. Parts: the request, and what its transcript has since the call before.

    The first `same` bytes of the request are those of the order's last one on this connection, and are left out. A call
    without a whole answer is asked again, under its number, when its order is followed over another connection.
    """

    PARTS = 2
    type: Literal["call"] = "call"
    key: Key
    number: int = Field(ge=0, le=MOST_ASKED)
    same: int = Field(ge=0, le=LONGEST_REQUEST)


class Drop(Message):
    """The answer to a call has arrived as a whole, or is not wanted any more: the manager may forget it."""

    type: Literal["drop"] = "drop"
    key: Key
    number: int = Field(ge=0, le=MOST_ASKED)


class Read(Message):
    """The next call of an attempt holds so many of the operator's instructions."""

    type: Literal["read"] = "read"
    key: Key
    count: int = Field(ge=1, le=1_000)


class Inspected(Message):
    """What the node holds."""

    type: Literal["inspected"] = "inspected"
    attempts: int = Field(ge=0)
    """Attempts that it works on."""
    checks: int = Field(ge=0)
    """Orders for checks that it works on."""
    reports: int = Field(ge=0)
    """Finished reports that were not fetched yet."""
    repositories: int = Field(ge=0)
    """Repositories with a cache."""
    commits: int = Field(ge=0)
    """Commits that the caches were given."""
    bytes: int = Field(ge=0)
    """What caches and reports take of its disk."""


class Cleaned(Message):
    """What was deleted."""

    type: Literal["cleaned"] = "cleaned"
    bytes: int = Field(ge=0)
    in_use: int = Field(ge=0)
    """Caches that stay, because a run uses them."""


FromManager = Open | Objects | Start | Follow | Answer | Instruct | Cancel | Acknowledge | Beat | Inspect | Clean
FromNode = Greeting | Opened | Refused | Stored | Event | Call | Drop | Read | Unknown | Beat | Inspected | Cleaned
AnyMessage = TypeVar("AnyMessage", bound=Message)
_manager: TypeAdapter[FromManager] = TypeAdapter(Annotated[FromManager, Field(discriminator="type")])
_node: TypeAdapter[FromNode] = TypeAdapter(Annotated[FromNode, Field(discriminator="type")])


def to_frame(message: Message, *parts: bytes) -> Frame:
    return Frame(message.model_dump(mode="json"), parts)


def from_manager(frame: Frame) -> FromManager:
    """A message of a manager. Raises `FrameError`."""
    return _parsed(_manager, frame)


def from_node(frame: Frame) -> FromNode:
    """A message of a node. Raises `FrameError`."""
    return _parsed(_node, frame)


def _parsed(adapter: TypeAdapter[AnyMessage], frame: Frame) -> AnyMessage:
    try:
        message = adapter.validate_python(frame.header)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "a header"
        raise FrameError(f"{where}: {first['msg']}"[:500]) from None
    if len(frame.parts) != message.PARTS:
        raise FrameError(f"{type(message).__name__} with {len(frame.parts)} parts instead of {message.PARTS}")
    return message
