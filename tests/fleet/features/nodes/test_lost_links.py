"""What a broken link costs: a call that was made is not made again; late work is kept and never lands."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from os import close
from socket import SHUT_RDWR, socket, socketpair

import pytest
from anyio import Event, create_task_group, fail_after, wait_readable
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from fleet.core.facts.facts import Fact, Report, WarningNoted
from fleet.features.nodes.connection import NodeConnection, greet
from fleet.features.nodes.messages import Frame, Open, to_frame
from fleet.features.nodes.node_orders import NodeLostError
from fleet.features.nodes.remote_node import RECONNECT_S, RemoteNode
from fleet.features.nodes.serve import hand_over, serve
from fleet.features.nodes.transport import FdStream, Link, LinkLostError
from fleet.ports.orders import AttemptOrder, AttemptResult
from tests.fleet.fakes import wait_until
from tests.fleet.features.nodes.conftest import GREETING, OPEN, ScriptedSite, attempt
from tests.fleet.features.nodes.test_calls import Asking, CountedMeter, Kept, Service, opened

KEY = "r/attempt/a/1"


@dataclass
class Machine:
    """A node whose processes outlive their connections, as those of a machine do."""

    site: ScriptedSite
    processes: TaskGroup
    fds: ExitStack
    links: list[socket] = field(default_factory=list)
    """The manager's ends, the latest one last."""
    reachable: Event = field(default_factory=Event)
    terms: bytes = b"{}"
    refuses: bool = False
    """Whether nothing answers there any more, which is known at once."""

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[NodeConnection]:
        if self.refuses:
            raise LinkLostError("connection refused")
        await self.reachable.wait()
        ours, theirs = socketpair()
        for each in (ours, theirs):
            each.setblocking(False)
        fd = theirs.detach()
        self.fds.callback(close, fd)

        @asynccontextmanager
        async def open_site(opening: Open, terms: bytes) -> AsyncIterator[ScriptedSite]:
            del opening, terms
            yield self.site

        folder = self.site.spool.folder
        process = partial(serve, folder_of=lambda _: folder)
        self.processes.start_soon(process, Link(FdStream(fd, fd)), GREETING, open_site)
        with ours:
            self.links.append(ours)
            manager = Link(FdStream(ours.fileno(), ours.fileno()))
            yield await greet(manager, OPEN, self.terms, within_s=10)

    def cut(self) -> None:
        self.links[-1].shutdown(SHUT_RDWR)


@asynccontextmanager
async def machine(site: ScriptedSite) -> AsyncIterator[Machine]:
    with ExitStack() as fds:
        async with create_task_group() as processes:
            found = Machine(site, processes, fds)
            found.reachable.set()
            yield found
            processes.cancel_scope.cancel()


def remote(
    machine: Machine, service: Service, objects: Kept, facts: list[Fact], *, reconnect_s: float = RECONNECT_S
) -> RemoteNode:
    connect: Callable[[], AbstractAsyncContextManager[NodeConnection]] = machine.connect
    return RemoteNode(
        name="one",
        workers=1,
        checks=1,
        connect=connect,
        objects=objects,
        notice=facts.append,
        calls=lambda order, meter: opened(service),  # noqa: ARG005 - one service for all
        reconnect_s=reconnect_s,
    )


async def tell(_: object) -> None:
    """No one is interested."""


@dataclass
class Trying:
    """An attempt that is made through a node, in a task of its own."""

    node: RemoteNode
    order: AttemptOrder = field(default_factory=attempt)
    result: AttemptResult | NodeLostError | None = None

    async def run(self) -> None:
        try:
            self.result = await self.node.attempt(KEY, self.order, CountedMeter(), tell)  # type: ignore[arg-type]
        except NodeLostError as lost:
            self.result = lost


async def test_a_call_whose_link_breaks_is_answered_over_the_next_one_and_made_once(site: ScriptedSite) -> None:
    asking, service = Asking(), Service()
    site.node = asking  # type: ignore[assignment]
    async with machine(site) as there, create_task_group() as tasks:
        trying = Trying(remote(there, service, Kept(), []))
        tasks.start_soon(trying.node.run)
        tasks.start_soon(trying.run)
        for number in range(3):
            await wait_until(lambda: bool(service.made) and len(there.links) > number)  # noqa: B023 - awaited at once
            there.cut()
        await wait_until(lambda: len(there.links) == 4 and trying.node.connection is not None)
        service.gate.set()
        with fail_after(20):
            await wait_until(lambda: trying.result is not None)
        tasks.cancel_scope.cancel()
    assert isinstance(trying.result, AttemptResult)
    assert isinstance(trying.result.outcome, Report)
    assert service.made == list(asking.requests)
    assert asking.heard == [b"answer to one", b"answer to one and two"]
    assert (asking.ran, bytes(service.kept)) == (["a"], b"a")


async def test_the_next_manager_makes_only_the_call_that_had_no_answer(site: ScriptedSite) -> None:
    """The first one is killed while the second call is under way: the conversation goes on, and nothing is repeated."""
    asking, first, second = Asking(), Service(quick=b"one"), Service()
    site.node = asking  # type: ignore[assignment]
    second.gate.set()
    async with machine(site) as there:
        async with create_task_group() as tasks:
            trying = Trying(remote(there, first, Kept(), []))
            tasks.start_soon(trying.node.run)
            tasks.start_soon(trying.run)
            await wait_until(lambda: len(first.made) == 2)
            there.cut()
            trying.node.connection = None  # killed: it says no goodbye
            tasks.cancel_scope.cancel()
        async with create_task_group() as tasks:
            again = Trying(remote(there, second, Kept(), []))
            tasks.start_soon(again.node.run)
            tasks.start_soon(again.run)
            await wait_until(lambda: again.result is not None)
            tasks.cancel_scope.cancel()
    assert isinstance(again.result, AttemptResult)
    assert second.made == [b"one and two"]
    assert asking.ran == ["a"]


async def test_work_that_arrives_after_it_was_given_to_others_is_kept_and_never_lands(site: ScriptedSite) -> None:
    objects, facts = Kept(), list[Fact]()
    async with machine(site) as there, create_task_group() as tasks:
        trying = Trying(remote(there, Service(), objects, facts, reconnect_s=0.1), attempt("slow"))
        tasks.start_soon(trying.node.run)
        tasks.start_soon(trying.run)
        await wait_until(lambda: site.node.ran == ["slow"])
        there.reachable = Event()
        there.cut()
        await wait_until(lambda: trying.result is not None)
        assert isinstance(trying.result, NodeLostError)
        site.node.gate.set()
        there.reachable.set()
        await wait_until(lambda: bool(objects.late) and site.spool.keys() == [])
        tasks.cancel_scope.cancel()
    assert objects.late == ["slow.1"]
    [warning] = [fact.text for fact in facts if isinstance(fact, WarningNoted)]
    assert warning == "node one reported attempt 1 at slow late: its work is kept but not used"
    assert site.node.ran == ["slow"]


async def test_a_late_attempt_that_asks_for_calls_is_stopped(site: ScriptedSite) -> None:
    go = Event()
    asking, service, objects = Asking(go=go), Service(), Kept()
    site.node = asking  # type: ignore[assignment]
    async with machine(site) as there, create_task_group() as tasks:
        trying = Trying(remote(there, service, objects, [], reconnect_s=0.1))
        tasks.start_soon(trying.node.run)
        tasks.start_soon(trying.run)
        await wait_until(lambda: asking.ran == ["a"])
        there.reachable = Event()
        there.cut()
        await wait_until(lambda: isinstance(trying.result, NodeLostError))
        go.set()
        there.reachable.set()
        await wait_until(lambda: not trying.node.lost and asking.stopped)
        tasks.cancel_scope.cancel()
    assert (service.made, objects.late) == ([], [])


async def test_a_conversation_on_a_host_that_is_gone_is_not_waited_for_until_the_end_of_its_lease(
    site: ScriptedSite,
) -> None:
    asking, service = Asking(), Service()
    site.node = asking  # type: ignore[assignment]
    async with machine(site) as there, create_task_group() as tasks:
        trying = Trying(remote(there, service, Kept(), []))
        tasks.start_soon(trying.node.run)
        tasks.start_soon(trying.run)
        await wait_until(lambda: bool(service.made))
        there.refuses = True
        there.cut()
        with fail_after(OPEN.lease_s / 2):
            await wait_until(lambda: trying.result is not None)
        tasks.cancel_scope.cancel()
    assert isinstance(trying.result, NodeLostError)
    assert str(trying.result) == "connection refused"


async def test_a_conversation_whose_host_does_not_answer_is_waited_for(site: ScriptedSite) -> None:
    """Neither a try that hangs nor one that failed once says that the host is gone."""
    asking, service = Asking(), Service()
    site.node = asking  # type: ignore[assignment]
    async with machine(site) as there, create_task_group() as tasks:
        trying = Trying(remote(there, service, Kept(), [], reconnect_s=0.0))
        tasks.start_soon(trying.node.run)
        await trying.node.wait_tried()
        tasks.start_soon(trying.run)
        await wait_until(lambda: bool(service.made))
        there.refuses, there.reachable = True, Event()
        there.cut()
        await wait_until(lambda: trying.node.refused == 1)
        there.refuses = False
        service.gate.set()
        await checkpoints(100)
        assert trying.result is None
        there.reachable.set()
        with fail_after(20):
            await wait_until(lambda: trying.result is not None)
        tasks.cancel_scope.cancel()
    assert isinstance(trying.result, AttemptResult)
    assert service.made == list(asking.requests)


async def checkpoints(count: int) -> None:
    for _ in range(count):
        await checkpoint()


@pytest.mark.parametrize("terms", [b"{}", b"other"])
async def test_a_process_takes_a_later_stream_only_under_the_same_terms(site: ScriptedSite, terms: bytes) -> None:
    ours, theirs = socketpair()
    with ours, theirs:
        async with machine(site) as there, there.connect() as connection, create_task_group() as tasks:
            tasks.start_soon(connection.run)
            await connection.start(KEY, attempt("slow"))
            await wait_until(lambda: site.node.ran == ["slow"])
            taken: list[bool] = []

            async def give() -> None:
                opening: Frame = to_frame(OPEN, terms)
                stream = FdStream(theirs.fileno(), theirs.fileno())
                taken.append(await hand_over(site.spool.folder, opening, stream))

            tasks.start_soon(give)
            if terms == b"{}":
                with fail_after(20):
                    await wait_readable(ours)  # the process says that it is open for the later manager
                ours.shutdown(SHUT_RDWR)
            await wait_until(lambda: bool(taken))
            tasks.cancel_scope.cancel()
    assert taken == [terms == b"{}"]


async def test_without_an_earlier_process_a_stream_stays_where_it_is(site: ScriptedSite) -> None:
    (site.spool.folder / "process.sock").touch()  # what a killed process left, or anything
    assert not await hand_over(site.spool.folder, to_frame(OPEN, b"{}"), FdStream(0, 1))
