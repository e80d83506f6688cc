"""The four verbs, in process and over a stream: what may be repeated, what is kept, what is stopped."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest
from anyio import create_task_group, fail_after, sleep

from fleet.core.facts.facts import Failure
from fleet.core.plans.plan import Criterion
from fleet.features.nodes.connection import NodeRefusedError, greet
from fleet.features.nodes.messages import (
    Frame,
    Greeting,
    Heartbeat,
    Open,
    OrderOpened,
    Stored,
    Unknown,
    encode,
    to_frame,
)
from fleet.features.nodes.node_orders import (
    AttemptDone,
    ChecksDone,
    NodeHost,
    OrderEvent,
    OrderFailed,
    UnknownOrderError,
)
from fleet.features.nodes.serve import serve
from fleet.features.nodes.transport import Link, LinkLostError
from fleet.ports.orders import ChecksOrder, WorkerFinished, WorktreeReady
from tests.fleet.fakes import wait_until
from tests.fleet.features.nodes.conftest import (
    GREETING,
    MADE,
    OPEN,
    SHA,
    Reach,
    ScriptedSite,
    attempt,
    connected,
    in_process,
    wire,
)

KEY = "r/attempt/a/1"


async def events_of(host: NodeHost, key: str, since: int = 0) -> list[OrderEvent]:
    with fail_after(10):
        async with aclosing(host.follow(key, since)) as events:
            return [event async for event in events]


async def test_an_attempt_begins_is_worked_on_and_is_reported(reach: Reach, site: ScriptedSite) -> None:
    async with reach(site) as host:
        await host.start(KEY, attempt())
        began, worked, done = await events_of(host, KEY)
    assert (began, worked) == (WorktreeReady(), WorkerFinished())
    assert isinstance(done, AttemptDone)
    assert (done.commit, done.pack, done.transcript) == (MADE, b"ffff on 0123", b"a")


async def test_checks_are_reported_in_their_order(reach: Reach, site: ScriptedSite) -> None:
    criteria = tuple(Criterion(criterion=name, run=name) for name in "xyz")
    async with reach(site) as host:
        await host.start("r/checks/1", ChecksOrder(SHA, criteria))
        [done] = await events_of(host, "r/checks/1")
    assert isinstance(done, ChecksDone)
    assert [run.command for run in done.runs] == ["x", "y", "z"]


async def test_an_order_that_is_given_again_is_done_once(reach: Reach, site: ScriptedSite) -> None:
    async with reach(site) as host:
        for _ in range(3):
            await host.start(KEY, attempt())
        first, second = await events_of(host, KEY), await events_of(host, KEY)
        await host.start(KEY, attempt())
        assert first == second == await events_of(host, KEY)
    assert site.node.ran == ["a"]


async def test_events_are_sent_from_a_number_on(reach: Reach, site: ScriptedSite) -> None:
    async with reach(site) as host:
        await host.start(KEY, attempt())
        everything = await events_of(host, KEY)
        assert await events_of(host, KEY, since=1) == everything[1:]


async def test_an_order_that_no_one_gave_is_unknown(reach: Reach, site: ScriptedSite) -> None:
    async with reach(site) as host:
        with pytest.raises(UnknownOrderError):
            await events_of(host, "r/attempt/other/1")


async def test_an_order_that_is_cancelled_stops_and_says_so(reach: Reach, site: ScriptedSite) -> None:
    async with reach(site) as host:
        await host.start("r/attempt/slow/1", attempt("slow"))
        await wait_until(lambda: site.node.ran == ["slow"])
        for _ in range(2):
            await host.cancel("r/attempt/slow/1")
        assert isinstance((await events_of(host, "r/attempt/slow/1"))[-1], OrderFailed)
    assert site.node.stopped == ["slow"]


async def test_what_can_not_be_done_is_reported_with_its_failure(reach: Reach, site: ScriptedSite) -> None:
    async with reach(site) as host:
        await host.start("r/attempt/broken/1", attempt("broken"))
        last = (await events_of(host, "r/attempt/broken/1"))[-1]
    assert last == OrderFailed(Failure(kind="infrastructure", summary="no room"))


async def test_a_report_is_kept_until_it_is_acknowledged_also_for_the_next_process(
    reach: Reach, site: ScriptedSite
) -> None:
    async with in_process(site) as before:
        await before.start(KEY, attempt())
        done = (await events_of(before, KEY))[-1]
    assert site.spool.keys() == [KEY]
    async with reach(site) as host:
        await host.start(KEY, attempt())
        assert await events_of(host, KEY) == [done]
        await host.acknowledge(KEY)
        await host.acknowledge(KEY)
        await wait_until(lambda: site.spool.keys() == [])
        with pytest.raises(UnknownOrderError):
            await events_of(host, KEY)
    assert site.node.ran == ["a"]


async def test_an_order_at_work_in_another_process_of_the_node_is_waited_for(reach: Reach, site: ScriptedSite) -> None:
    key = "r/attempt/slow/1"
    async with in_process(site) as first, reach(site) as second:
        await first.start(key, attempt("slow"))
        await wait_until(lambda: site.node.ran == ["slow"])
        await second.start(key, attempt("slow"))
        async with create_task_group() as tasks:
            tasks.start_soon(sleep, 0)
            site.node.gate.set()
            assert isinstance((await events_of(second, key))[-1], AttemptDone)
    assert site.node.ran == ["slow"]


async def test_a_node_that_does_not_hear_its_manager_stops_and_keeps_what_is_finished(site: ScriptedSite) -> None:
    opening = OPEN.model_copy(update={"lease_s": 0.3})
    async with connected(site, opening) as connection:
        await connection.start(KEY, attempt())
        await events_of(connection, KEY)
        await connection.start("r/attempt/slow/1", attempt("slow"))
        await wait_until(lambda: "slow" in site.node.ran)
        site.cut()
        with fail_after(10):
            await connection.ended.wait()
            await wait_until(lambda: site.node.stopped == ["slow"])
        assert site.spool.keys() == [KEY]


async def test_a_node_leaves_a_stream_that_is_dead_and_does_not_end(site: ScriptedSite) -> None:
    @asynccontextmanager
    async def open_site(opening: Open, terms: bytes) -> AsyncIterator[ScriptedSite]:
        del opening, terms
        yield site

    with wire() as ends, fail_after(10):
        await ends.manager.send(encode(to_frame(OPEN.model_copy(update={"lease_s": 0.1}), b"{}")))
        await serve(Link(ends.node), GREETING, open_site)
    assert site.node.ran == []


async def test_a_silent_node_is_noticed_at_the_end_of_its_lease() -> None:
    with wire() as ends:
        for first in (GREETING, OrderOpened(commits=(), orders=())):
            await ends.node.send(encode(to_frame(first)))
        opening = OPEN.model_copy(update={"lease_s": 0.2})
        connection = await greet(Link(ends.manager), opening, b"", within_s=10)
        with fail_after(10):
            await connection.run()
    assert connection.silent


@pytest.mark.parametrize(
    ("greeting", "why"),
    [
        (GREETING.model_copy(update={"version": "0"}), "runs fleet 0"),
        (GREETING.model_copy(update={"protocol": 9}), "protocol 9"),
        (GREETING.model_copy(update={"problems": ("no bubblewrap",)}), "no bubblewrap"),
        (Heartbeat(number=0), "got `beat`"),
    ],
)
async def test_a_node_of_another_version_or_with_a_problem_is_refused_by_name(
    greeting: Greeting | Heartbeat, why: str
) -> None:
    with wire() as ends:
        await ends.node.send(encode(to_frame(greeting)))
        with pytest.raises(NodeRefusedError, match=why):
            await greet(Link(ends.manager), OPEN, b"", within_s=10)


async def test_what_does_not_speak_the_protocol_is_no_node() -> None:
    with wire() as ends:
        await ends.node.send(b"Welcome to Ubuntu 24.04 LTS\n")
        with pytest.raises(LinkLostError, match="did not start `fleet node --stdio`"):
            await greet(Link(ends.manager), OPEN, b"", within_s=10)


@pytest.mark.parametrize(
    "sent",
    [
        to_frame(Heartbeat(number=7)),
        to_frame(Unknown(key="x")).header | {"more": 1},
        to_frame(Stored(commit=SHA)),
        to_frame(GREETING),
        {"type": "exec", "command": "rm"},
    ],
)
async def test_a_node_that_breaks_the_protocol_is_told_apart_from_one_that_is_gone(
    sent: Frame | dict[str, object],
) -> None:
    with wire() as ends:
        for first in (GREETING, OrderOpened(commits=(), orders=())):
            await ends.node.send(encode(to_frame(first)))
        connection = await greet(Link(ends.manager), OPEN, b"", within_s=10)
        await ends.node.send(encode(sent if isinstance(sent, Frame) else Frame(sent)))
        with fail_after(10):
            await connection.run()
    assert connection.broke_protocol
    assert not connection.silent
