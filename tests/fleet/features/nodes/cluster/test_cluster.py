"""A Ray cluster as nodes, with the real program beside the manager and a stand-in for Ray."""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from anyio import create_task_group, fail_after

from fleet.features.nodes.cluster.cluster import RayCluster
from fleet.features.nodes.cluster.cluster_events import ClusterHost
from fleet.features.nodes.connection import read_greeting
from fleet.features.nodes.kinds import NOT_JOINED
from fleet.features.nodes.transport import LinkLostError
from tests.fleet.fakes import wait_until
from tests.fleet.features.nodes.cluster.conftest import ONE, TWO, Script

Make = Callable[..., RayCluster]
ECHO = (sys.executable, "-u", "-I", "-S", "-c")
COPIES = "import sys; [sys.stdout.buffer.write(line) for line in sys.stdin.buffer]"


@asynccontextmanager
async def joined(cluster: RayCluster) -> AsyncIterator[None]:
    with fail_after(60):
        async with create_task_group() as tasks:
            tasks.start_soon(cluster.run)
            await wait_until(lambda: cluster.out != NOT_JOINED)
            yield
            tasks.cancel_scope.cancel()


async def test_each_machine_of_a_cluster_is_found_and_those_that_join_later(script: Script, make: Make) -> None:
    cluster = make(slots=40)
    async with joined(cluster):
        assert script.found == [ClusterHost(id=ONE, processors=2)]
        script.hosts(ONE, TWO)
        await wait_until(lambda: script.found[1:] == [ClusterHost(id=TWO, processors=2)])
        script.hosts(TWO)
        await wait_until(lambda: cluster.present == {TWO})
        with pytest.raises(LinkLostError, match="no longer in the cluster"):
            async with cluster.reach(ClusterHost(id=ONE, processors=2)):
                pass
    assert script.asked == ["slots 40", "slots 0", "shutdown"]
    assert script.lost == []


async def test_what_ray_does_not_know_to_have_arrived_is_sent_again_and_arrives_once(
    script: Script, make: Make
) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(100))
    cluster = make(*ECHO, COPIES)
    async with joined(cluster):
        (script.folder / "unavailable").write_text("3")
        async with cluster.reach(script.found[0]) as link:
            await link.stream.send(lines)
            received = b""
            while len(received) < len(lines):
                received += await link.stream.receive()
    assert received == lines
    assert (script.folder / "unavailable").read_text() == "0"


async def test_a_node_has_nothing_of_ray_in_its_environment(script: Script, make: Make) -> None:
    shows = "import os; print(sorted(name for name in os.environ if name.startswith('RAY_')), flush=True)"
    async with joined(cluster := make(*ECHO, shows)), cluster.reach(script.found[0]) as link:
        received = b""
        while not received.endswith(b"\n"):
            received += await link.stream.receive()
        assert received == b"[]\n"


async def test_why_a_node_does_not_greet_is_in_its_last_words(script: Script, make: Make) -> None:
    fails = "import sys; sys.exit('first line\\nno \\x1b[1mbubblewrap here')"
    async with joined(cluster := make(*ECHO, fails)):
        with pytest.raises(LinkLostError, match=r"no \[1mbubblewrap here"):
            async with cluster.reach(script.found[0]) as link:
                await read_greeting(link, within_s=30)


async def test_a_program_that_is_not_there_is_named(script: Script, make: Make) -> None:
    async with joined(cluster := make("/no/such/program")):
        with pytest.raises(LinkLostError, match="No such file"):
            async with cluster.reach(script.found[0]) as link:
                await read_greeting(link, within_s=30)


async def test_an_actor_that_died_ends_the_stream_with_the_reason(script: Script, make: Make) -> None:
    async with joined(cluster := make(*ECHO, COPIES)):
        (script.folder / "dead").touch()
        with pytest.raises(LinkLostError, match="its node has died"):
            async with cluster.reach(script.found[0]) as link:
                await read_greeting(link, within_s=30)


async def test_a_cluster_that_is_not_there_is_named_and_tried_again(script: Script, make: Make) -> None:
    cluster = make(address="head:6379")
    async with joined(cluster):
        assert "Could not find a cluster at head:6379" in cluster.out
        cluster.address = "auto"
        await wait_until(lambda: cluster.out == "")
    [why] = script.lost
    assert "can't join Ray at 'head:6379'" in why


async def test_without_ray_the_reason_says_what_to_install(
    script: Script, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    async with joined(make()):
        assert script.lost == ["Ray is not installed on this machine: pip install 'worktree-fleet[ray]'"]
