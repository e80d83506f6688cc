"""Calls of an attempt on a node, in process and over a stream: made once, answered in parts, asked again, bounded."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import pytest
from anyio import Event, create_task_group, fail_after, sleep

from fleet.core.base.ids import Sha
from fleet.core.facts.fact_parts import Instruction
from fleet.core.facts.facts import Failure, Report
from fleet.features.nodes.call_proxy import CallChannel, CallProxy
from fleet.features.nodes.connection import greet
from fleet.features.nodes.messages import DropAttempt, FrameError, ModelCall, OrderOpened, Read, encode, to_frame
from fleet.features.nodes.remote_node import RemoteNode, StoreObjects
from fleet.features.nodes.transport import Link
from fleet.ports.agents import (
    LONGEST_REQUEST,
    MOST_CALLS,
    Asked,
    AttemptCalls,
    CallRefusedError,
    DrainingError,
    Dropped,
    InstructionsRead,
    Meter,
    Reply,
    Sign,
)
from fleet.ports.operator import SILENT
from fleet.ports.orders import AttemptOrder, AttemptResult, Tell, WorkerFinished, WorktreeReady
from fleet.ports.worktrees import Change, EffectError
from tests.fleet.fakes import wait_until
from tests.fleet.features.nodes.conftest import GREETING, MADE, OPEN, Reach, ScriptedSite, attempt, connected, wire

KEY = "r/attempt/a/1"


@dataclass
class Asking:
    """Satisfies `Workshop`: an attempt asks for calls, one after the other, and reports what it was answered."""

    requests: tuple[bytes, ...] = (b"one", b"one and two")
    heard: list[bytes] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    waits: int = 0
    """For so many instructions before it asks."""
    ran: list[str] = field(default_factory=list)
    go: Event | None = None
    """It waits for this, too, before it asks."""
    stopped: bool = False

    async def attempt(self, order: AttemptOrder, line: CallChannel, tell: Tell) -> AttemptResult:
        self.ran.append(order.brief.subtask.id)
        await tell(WorktreeReady())
        operator = order.brief.operator
        while len(self.told) < self.waits:
            await operator.wait_told(len(self.told))
            self.told += [each.text for each in await operator.read()]
        try:
            if self.go is not None:
                await self.go.wait()
            for request in self.requests:
                async with line.call(request) as parts:
                    self.heard.append(b"".join([part async for part in parts]))
        except BaseException:
            self.stopped = True
            raise
        await tell(WorkerFinished())
        return AttemptResult(Report(status="done", summary="did it"), Change(MADE, ("a.txt",)))

    async def check(self, order: object) -> tuple[()]:
        raise AssertionError(order)


@dataclass
class Service:
    """Satisfies `AttemptCalls`: answers in two parts, once the gate is open; what is `quick` at once."""

    made: list[bytes] = field(default_factory=list)
    kept: bytearray = field(default_factory=bytearray)
    drained: bool = False
    gate: Event = field(default_factory=Event)
    error: Exception | None = None
    closed: int = 0
    quick: bytes = b"nothing"

    async def answer(self, request: bytes, reply: Reply) -> None:
        self.made.append(request)
        await reply.send(b"answer to ")
        if request != self.quick:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        await reply.send(request)

    def keep(self, transcript: bytes) -> None:
        self.kept += transcript

    def close(self) -> None:
        self.closed += 1


@dataclass
class Telling:
    """Satisfies `Operator`, as the manager has it."""

    said: list[Instruction] = field(default_factory=list)
    read_until: list[int] = field(default_factory=list)

    def told(self, since: int = 0) -> tuple[Instruction, ...]:
        return tuple(self.said[since:])

    async def wait_told(self, count: int) -> None:
        while len(self.said) <= count:  # noqa: ASYNC110 - as long as its test
            await sleep(0.01)

    async def mark_read(self, count: int) -> None:
        self.read_until.append(count)


@pytest.fixture
def service() -> Service:
    service = Service()
    service.gate.set()
    return service


@pytest.fixture
def asking(site: ScriptedSite) -> Asking:
    asking = Asking()
    site.node = asking  # type: ignore[assignment]
    return asking


@contextmanager
def opened(service: AttemptCalls) -> Iterator[AttemptCalls]:
    yield service


@dataclass
class CountedMeter:
    """Satisfies what is asked of a `Meter` here."""

    called: bool = True


def no_objects(*_: object) -> AsyncIterator[bytes]:
    async def parts() -> AsyncIterator[bytes]:
        yield b"PACK"

    return parts()


class Kept(StoreObjects):
    """Keeps what comes in memory."""

    def __init__(self) -> None:
        self.late: list[str] = []
        self.kept: dict[str, bytes] = {}

    def pack(self, commit: Sha, have: object) -> AsyncIterator[bytes]:
        return no_objects(commit, have)

    async def keep_log(self, commit: Sha | None, command: str, text: bytes) -> str:
        self.kept[f"{commit} {command}"] = text
        return f"checks/{len(self.kept)}.log"

    async def take_in(self, order: AttemptOrder, done: object, *, late: bool = False) -> Change:
        del done
        if late:
            self.late.append(f"{order.brief.subtask.id}.{order.brief.attempt}")
        return Change(MADE, ("a.txt",))


def remote(site: ScriptedSite, service: AttemptCalls, objects: Kept | None = None, *, notices: list[str]) -> RemoteNode:
    """A node over streams, connected again whenever its stream ends."""

    @asynccontextmanager
    async def connect() -> AsyncIterator[object]:
        async with connected(site, running=False) as connection:
            yield connection

    return RemoteNode(
        name="one",
        workers=1,
        checks=1,
        connect=connect,  # type: ignore[arg-type]
        objects=objects or Kept(),
        notice=lambda fact: notices.append(str(fact)),
        calls=lambda order, meter: opened(service),  # noqa: ARG005 - one service for all
    )


async def attempted(node: RemoteNode, order: AttemptOrder | None = None, *, called: bool = True) -> AttemptResult:
    async def tell(_: object) -> None:
        pass

    meter: Meter = CountedMeter(called)  # type: ignore[assignment]
    result: AttemptResult | Exception = AssertionError("it had no end")
    with fail_after(20):
        async with create_task_group() as tasks:
            tasks.start_soon(node.run)
            try:
                result = await node.attempt(KEY, order or attempt(), meter, tell)
            except Exception as error:  # noqa: BLE001 - raised below, without the group
                result = error
            tasks.cancel_scope.cancel()
    if isinstance(result, Exception):
        raise result
    return result


@asynccontextmanager
async def served(host: object, service: Service, operator: object = SILENT) -> AsyncIterator[list[object]]:
    """What an attempt says that is followed by a desk."""
    said: list[object] = []
    async with create_task_group() as tasks:
        desk = CallProxy(KEY, service, operator, tasks)  # type: ignore[arg-type]
        desk.attach(host)  # type: ignore[arg-type]

        async def follow() -> None:
            async for event in host.follow(KEY):  # type: ignore[attr-defined]
                if isinstance(event, Asked | Dropped | InstructionsRead):
                    await desk.take(event)
                else:
                    said.append(event)

        tasks.start_soon(follow)
        yield said
        tasks.cancel_scope.cancel()


async def test_calls_are_answered_in_parts_and_their_transcript_comes_along(
    reach: Reach, site: ScriptedSite, asking: Asking, service: Service
) -> None:
    async with reach(site) as host:
        await host.start(KEY, attempt())
        async with served(host, service) as said:
            await wait_until(lambda: len(said) == 3)
    assert service.made == [b"one", b"one and two"]
    assert asking.heard == [b"answer to one", b"answer to one and two"]
    assert bytes(service.kept) == b"a", "what went along with a call is not repeated with the report"
    assert getattr(said[-1], "transcript", None) == b""


async def test_what_the_operator_says_arrives_once_and_is_on_record_before_the_next_call(
    reach: Reach, site: ScriptedSite, asking: Asking, service: Service
) -> None:
    asking.waits = 2
    operator = Telling([Instruction("early", "ada", 1.0)])
    async with reach(site) as host:
        await host.start(KEY, attempt())
        async with served(host, service, operator) as said:
            await wait_until(lambda: asking.told == ["early"])
            operator.said.append(Instruction("late", "ada", 2.0, interrupt=True))
            await host.instruct(KEY, 0, operator.said[0])  # as over a new connection
            await wait_until(lambda: len(said) == 3)
    assert asking.told == ["early", "late"]
    assert operator.read_until[-1] == 2
    assert asking.heard


async def test_a_manager_refuses_nonsense_about_calls_and_a_node_answers_that_it_did_not_ask_for() -> None:
    line = CallChannel()
    with pytest.raises(FrameError, match="an answer to an unknown call"):
        line.take(0, 0, b"x", last=True)
    with pytest.raises(FrameError, match="missing"):
        line.hear(1, Instruction("x", "ada", 1.0))
    async with create_task_group() as tasks:
        tasks.start_soon(_ask, line)
        await wait_until(lambda: line.called)
        with pytest.raises(FrameError, match="gap"):
            line.take(0, 1, b"x", last=True)
        line.take(0, 0, b"x", last=False)
        line.take(0, 0, b"again", last=False)
        line.take(0, 1, b"", last=True)


async def _ask(line: CallChannel) -> None:
    async with line.call(b"r") as parts:
        assert [part async for part in parts] == [b"x", b""]


@pytest.mark.parametrize(
    ("signs", "why"),
    [
        ([Asked(number, b"r") for number in range(MOST_CALLS + 1)], "more than 8 concurrent calls"),
        ([Asked(1, b"r"), Asked(0, b"r")], "repeats a call"),
        ([InstructionsRead(1)], "than were sent"),
    ],
)
async def test_what_no_honest_node_asks_for_is_refused(signs: list[Sign], why: str, service: Service) -> None:
    service.gate = Event()
    async with create_task_group() as tasks:
        desk = CallProxy(KEY, service, SILENT, tasks)
        *honest, last = signs
        for sign in honest:
            await desk.take(sign)
        with pytest.raises(CallRefusedError, match=why):
            await desk.take(last)
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    "message", [ModelCall(key="x", number=0), DropAttempt(key="x", number=0), Read(key="x", count=1)]
)
async def test_a_call_for_an_order_that_a_node_was_not_given_breaks_the_protocol(
    message: ModelCall | DropAttempt | Read,
) -> None:
    with wire() as ends:
        for first in (GREETING, OrderOpened(commits=(), orders=())):
            await ends.node.send(encode(to_frame(first)))
        connection = await greet(Link(ends.manager), OPEN, b"", within_s=10)
        await ends.node.send(encode(to_frame(message, *[b""] * message.PARTS)))
        with fail_after(10):
            await connection.run()
    assert connection.broke_protocol


async def test_a_request_that_is_too_long_breaks_the_protocol() -> None:
    with wire() as ends:
        for first in (GREETING, OrderOpened(commits=(), orders=())):
            await ends.node.send(encode(to_frame(first)))
        connection = await greet(Link(ends.manager), OPEN, b"", within_s=10)
        connection._followed.add(KEY)
        call = encode(to_frame(ModelCall(key=KEY, number=0), bytes(LONGEST_REQUEST + 1), b""))
        with fail_after(20):
            async with create_task_group() as tasks:
                tasks.start_soon(ends.node.send, call)
                await connection.run()
    assert connection.broke_protocol


async def test_a_call_that_no_order_allows_ends_the_use_of_the_node(
    site: ScriptedSite, asking: Asking, service: Service
) -> None:
    del asking
    service.error, notices = CallRefusedError("it asks for the model 'opus'"), list[str]()
    node = remote(site, service, notices=notices)
    with pytest.raises(EffectError, match="violated the protocol: it asks for the model 'opus'"):
        await attempted(node)
    assert node.banned


async def test_a_call_that_a_draining_run_does_not_make_stops_the_attempt_as_it_does_here(
    site: ScriptedSite, service: Service
) -> None:
    @dataclass
    class Drained(Asking):
        async def attempt(self, order: AttemptOrder, line: CallChannel, tell: Tell) -> AttemptResult:
            await super().attempt(order, line, tell)
            raise DrainingError

    site.node, service.drained = Drained(), True  # type: ignore[assignment]
    with pytest.raises(DrainingError):
        await attempted(remote(site, service, notices=[]))


@pytest.mark.parametrize("called", [True, False])
async def test_an_error_of_ours_in_a_call_is_a_failed_attempt_only_if_a_call_was_paid_for(
    site: ScriptedSite, asking: Asking, service: Service, *, called: bool
) -> None:
    del asking
    service.error = RuntimeError("a bug")
    node = remote(site, service, notices=[])
    if not called:
        with pytest.raises(RuntimeError, match="a bug"):
            await attempted(node, called=False)
        return
    result = await attempted(node)
    assert isinstance(result.outcome, Failure)
    assert (result.outcome.kind, "a bug" in result.outcome.evidence + result.outcome.summary) == ("internal", True)


async def test_a_worker_that_no_one_waits_for_is_not_answered(site: ScriptedSite, service: Service) -> None:
    """The calls of an attempt end with it: what it left behind is closed, and counted by who makes them."""
    site.node = Asking(requests=())  # type: ignore[assignment]
    result = await attempted(remote(site, service, notices=[]))
    assert isinstance(result.outcome, Report)
    assert service.closed == 1
