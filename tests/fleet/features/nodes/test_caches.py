"""What a person asks of a node outside of runs: what it holds, and to delete what no run uses."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from anyio import create_task_group

from fleet.features.nodes.connection import NodeRefusedError, read_greeting
from fleet.features.nodes.messages import Clean, Follow, Frame, Inspect, NodeEvent, Open, encode, to_frame
from fleet.features.nodes.node_admin import NodeAdmin
from fleet.features.nodes.node_process import ORDERS, NodeCaches
from fleet.features.nodes.reports import Spool
from fleet.features.nodes.serve import serve
from fleet.features.nodes.transport import Link
from tests.fleet.features.nodes.conftest import GREETING, ScriptedNode, ScriptedSite, connected, wire
from worktrees.leases.run_worktrees import reserve_name
from worktrees.store.packs import open_node_store
from worktrees.store.store import Store


@asynccontextmanager
async def _never(opening: Open, terms: bytes) -> AsyncIterator[ScriptedSite]:
    """No run is opened here."""
    yield ScriptedSite(ScriptedNode(), Spool(Path(f"/nowhere/{opening.run}/{len(terms)}")))


@asynccontextmanager
async def cared_for(state_dir: Path) -> AsyncIterator[NodeAdmin]:
    """A node with these caches, at the other end of a stream."""

    with wire() as ends:
        async with create_task_group() as tasks:
            tasks.start_soon(serve, Link(ends.node), GREETING, _never, NodeCaches(state_dir))
            link = Link(ends.manager)
            greeting = await read_greeting(link, within_s=10)
            yield NodeAdmin(greeting, link, link.frames())
            tasks.cancel_scope.cancel()


async def cache(state_dir: Path, name: str) -> Store:
    store = await open_node_store(state_dir, name, "sha1")
    await store.close()
    return store


def spool_of(state_dir: Path, repository: str) -> Spool:
    spool = Spool(state_dir / ORDERS / repository / "r")
    spool.make()
    return spool


def report(spool: Spool, key: str) -> None:
    spool.put(key, to_frame(NodeEvent(key=key, number=0), b"{}", b"", b""))


async def test_a_node_says_what_it_holds_and_what_it_works_on(tmp_path: Path) -> None:
    await cache(tmp_path, "one-1")
    spool = spool_of(tmp_path, "one-1")
    report(spool, "r/attempt/a/1")
    with spool.locked("r/attempt/b/1"), spool.locked("r/checks/1234/1"):
        async with cared_for(tmp_path) as node:
            held = await node.inspect()
            assert await node.round_trip_s() > 0
    assert (held.attempts, held.checks, held.reports, held.repositories, held.commits) == (1, 1, 1, 1, 0)
    assert held.bytes > 0


async def test_a_node_without_anything_holds_nothing(tmp_path: Path) -> None:
    async with cared_for(tmp_path) as node:
        assert (await node.inspect()).bytes == 0
        assert (await node.clean()).bytes == 0


async def test_what_no_run_uses_is_deleted_and_what_one_uses_stays(tmp_path: Path) -> None:
    await cache(tmp_path, "old-1")
    used = await cache(tmp_path, "used-1")
    for name in ("old-1", "used-1"):
        report(spool_of(tmp_path, name), "r/attempt/a/1")
    (tmp_path / "node/stores/.deleted-1").mkdir()
    with reserve_name(used, "node-1234"):
        async with cared_for(tmp_path) as node:
            cleaned = await node.clean()
    assert cleaned.in_use == 1
    assert cleaned.bytes > 0
    assert [path.name for path in (tmp_path / "node/stores").iterdir()] == ["used-1"]
    assert [path.name for path in (tmp_path / ORDERS).iterdir()] == ["used-1"]


async def test_one_cache_is_deleted_alone(tmp_path: Path) -> None:
    for name in ("one-1", "two-1"):
        await cache(tmp_path, name)
    async with cared_for(tmp_path) as node:
        await node.clean("one-1")
        assert (await node.inspect()).repositories == 1
    assert (tmp_path / "node/stores/two-1").is_dir()


async def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    async with cared_for(tmp_path) as node:
        await node.link.stream.send(_encoded({"type": "clean", "repository": "../../etc"}))
        with pytest.raises(NodeRefusedError, match="repository"):
            await node.inspect()


def _encoded(header: dict[str, object]) -> bytes:
    return encode(Frame(header))


@pytest.mark.parametrize("message", [Inspect(), Clean()])
async def test_a_connection_of_a_run_answers_neither(site: ScriptedSite, message: Inspect | Clean) -> None:
    async with connected(site) as connection:
        await connection.link.send(message)
        await connection.ended.wait()
    assert f"unexpected `{message.type}` message" in connection.why


async def test_nothing_of_a_run_is_done_for_who_did_not_open_it(tmp_path: Path) -> None:
    async with cared_for(tmp_path) as node:
        await node.inspect()
        await node.link.send(Follow(key="r/attempt/a/1", since=0))
        with pytest.raises(NodeRefusedError, match="`follow` without an open connection"):
            await node.inspect()
