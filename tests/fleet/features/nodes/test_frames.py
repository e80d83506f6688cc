"""Frames and messages: whatever arrives, it is either a message or an error, and costs no more than its limit."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.core.base.ids import RunId, Sha
from fleet.core.facts.facts import CheckRun, Failure, RanTests, Report, SetupRun
from fleet.core.plans.plan import Criterion
from fleet.features.nodes.messages import (
    LENGTHS,
    LONGEST_HEADER,
    Acknowledge,
    Cancel,
    Decoder,
    DropAttempt,
    Follow,
    Frame,
    FrameError,
    FromManager,
    FromNode,
    Greeting,
    Heartbeat,
    Instruct,
    ModelAnswer,
    ModelCall,
    NodeEvent,
    NodeMessage,
    ObjectPack,
    Open,
    OrderOpened,
    OrderRefused,
    Read,
    Start,
    Stored,
    Unknown,
    dump_event,
    dump_order,
    encode,
    from_manager,
    from_node,
    load_event,
    load_order,
    to_frame,
)
from fleet.features.nodes.node_orders import AttemptDone, ChecksDone, NumberedEvent, OrderFailed
from fleet.ports.agents import WorkerBrief
from fleet.ports.orders import AttemptOrder, ChecksOrder, Order, WorkerFinished, WorktreeReady
from tests.fleet.core.pretend import subtask

SHA = Sha("0123456789abcdef0123456789abcdef01234567")
OPEN = Open(protocol=1, version="1", run="r", repository="repo-1", object_format="sha1", base=SHA, lease_s=20.0)
FROM_MANAGER: list[FromManager] = [
    OPEN,
    ObjectPack(commit=SHA, last=True),
    Start(key="r/attempt/a/1"),
    Follow(key="r/attempt/a/1", since=0),
    ModelAnswer(key="r/attempt/a/1", number=0, at=0, last=True),
    Instruct(key="r/attempt/a/1", number=0),
    Cancel(key="r/attempt/a/1"),
    Acknowledge(key="r/attempt/a/1"),
    Heartbeat(number=0),
]
FROM_NODE: list[FromNode] = [
    Greeting(protocol=1, version="1", host="h", processors=2, memory_bytes=1, time=1.0),
    OrderOpened(commits=(SHA,), orders=("r/attempt/a/1",)),
    OrderRefused(why="no"),
    Stored(commit=SHA),
    NodeEvent(key="r/attempt/a/1", number=2),
    ModelCall(key="r/attempt/a/1", number=0),
    DropAttempt(key="r/attempt/a/1", number=0),
    Read(key="r/attempt/a/1", count=1),
    Unknown(key="r/attempt/a/1"),
    Heartbeat(number=0),
]


def frame_of(message: NodeMessage) -> Frame:
    return to_frame(message, *[b"x"] * message.PARTS)


@given(st.lists(st.binary(max_size=60), max_size=8), st.lists(st.integers(1, 50)))
def test_frames_arrive_however_they_are_cut(bodies: list[bytes], cuts: list[int]) -> None:
    frames = [Frame({"type": "t", "n": number}, (body,)) for number, body in enumerate(bodies)]
    data, decoder, found = b"".join(map(encode, frames)), Decoder(), list[Frame]()
    for cut in (*cuts, len(data)):
        found += decoder.feed(data[:cut])
        data = data[cut:]
    assert found == frames
    assert decoder.is_between_frames


@given(st.binary(max_size=400))
def test_noise_is_an_error_or_waits_for_more(noise: bytes) -> None:
    decoder = Decoder(longest_body=1000)
    try:
        for frame in decoder.feed(noise):
            from_node(frame)
    except FrameError:
        return
    assert len(decoder._bytes) <= LENGTHS + LONGEST_HEADER + 1000


@pytest.mark.parametrize("message", FROM_MANAGER, ids=lambda message: message.type)
def test_what_a_manager_sends_is_read_as_it_was_sent(message: FromManager) -> None:
    [frame] = Decoder().feed(encode(frame_of(message)))
    assert from_manager(frame) == message


@pytest.mark.parametrize("message", FROM_NODE, ids=lambda message: message.type)
def test_what_a_node_sends_is_read_as_it_was_sent(message: FromNode) -> None:
    [frame] = Decoder().feed(encode(frame_of(message)))
    assert from_node(frame) == message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from([*FROM_MANAGER, *FROM_NODE]), st.data())
def test_a_message_with_a_field_changed_is_the_same_kind_of_message_or_an_error(
    message: NodeMessage, data: st.DataObject
) -> None:
    """Fuzzed from both sides: each end reads only what it may get, whatever a header says."""
    frame = frame_of(message)
    field = data.draw(st.sampled_from([*frame.header, "more"]))
    header = {**frame.header, field: data.draw(JSON)}
    parts = data.draw(st.sampled_from([frame.parts, (), (b"",) * 5]))
    for read in (from_manager, from_node):
        try:
            found = read(Frame(dict(header), parts))
        except FrameError:
            continue
        assert len(parts) == found.PARTS
        assert isinstance(found, type(message)) or field == "type"


@pytest.mark.parametrize(
    ("lengths", "why"),
    [
        ((0, 0), "a header of 0 bytes"),
        ((LONGEST_HEADER + 1, 0), "a header of 65537 bytes"),
        ((2, 2**32 - 1), "a body of 4294967295 bytes"),
    ],
)
def test_a_length_beyond_its_limit_is_refused_before_what_follows_it(lengths: tuple[int, int], why: str) -> None:
    with pytest.raises(FrameError, match=why):
        list(Decoder().feed(b"".join(length.to_bytes(4) for length in lengths)))


@pytest.mark.parametrize(
    "header", ["[]", "7", "{", '{"parts":1}', '{"parts":[-1]}', '{"parts":[true]}', '{"parts":[9]}', "[" * 30_000]
)
def test_a_header_that_is_none_is_refused(header: str) -> None:
    data = header.encode()
    with pytest.raises(FrameError):
        list(Decoder().feed(len(data).to_bytes(4) + bytes(4) + data))


def test_what_no_side_would_take_is_not_sent() -> None:
    with pytest.raises(FrameError, match="too long"):
        encode(Frame({"why": "x" * LONGEST_HEADER}))


# ---- orders and events

ORDERS: list[Order] = [
    AttemptOrder(SHA, "step", WorkerBrief(run=RunId("r"), subtask=subtask("a"), attempt=1, model=None)),
    ChecksOrder(SHA, (Criterion(criterion="c", run="true"),), lands=True),
]
CHECK = CheckRun(criterion="c", command="true", passed=True, ran_tests=RanTests(ran=frozenset({"t"})))
PLAIN = CHECK.model_copy(update={"ran_tests": None})
EVENTS: list[NumberedEvent] = [
    WorktreeReady(),
    WorkerFinished(),
    AttemptDone(Report(status="done", summary="s"), SHA, pack=b"p", transcript=b"t"),
    AttemptDone(Failure(kind="budget", summary="s"), refused=Failure(kind="empty", summary="nothing")),
    ChecksDone((CHECK,)),
    ChecksDone((CHECK,), (SetupRun(commit=SHA, check=PLAIN),), {"checks/1.log": b"one", "checks/2.log": b"three"}),
    OrderFailed(Failure(kind="infrastructure", summary="s"), PLAIN, {"checks/1.log": b"one"}),
]


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_an_order_arrives_as_it_was_given(order: Order) -> None:
    assert load_order(dump_order(order)) == order


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_an_event_arrives_as_it_happened(event: NumberedEvent) -> None:
    assert load_event(*dump_event(event)) == event


@pytest.mark.parametrize("logs", [b"", b"onetwo!", b"onethreemore"])
def test_logs_of_other_sizes_than_were_named_break_the_protocol(logs: bytes) -> None:
    data, pack, _ = dump_event(ChecksDone((CHECK,), logs={"a": b"one", "b": b"three"}))
    with pytest.raises(FrameError, match="don't match their sizes"):
        load_event(data, pack, logs)


@given(st.sampled_from([dump_event(event)[0] for event in EVENTS] + [dump_order(order) for order in ORDERS]), st.data())
def test_a_payload_with_a_value_changed_is_a_payload_or_an_error(payload: bytes, data: st.DataObject) -> None:
    tree = json.loads(payload)
    name = data.draw(st.sampled_from([*tree, "more"]))
    inner = tree.get(name)
    if isinstance(inner, dict) and data.draw(st.booleans()):
        inner[data.draw(st.sampled_from([*inner, "more"]))] = data.draw(JSON)
    else:
        tree[name] = data.draw(JSON)
    changed = json.dumps(tree).encode()
    for load in (load_event, load_order):
        with suppress(FrameError):
            load(changed)


@given(st.binary(max_size=200))
def test_noise_is_no_order_and_no_event(noise: bytes) -> None:
    for load in (load_event, load_order):
        with pytest.raises(FrameError):
            load(noise)
