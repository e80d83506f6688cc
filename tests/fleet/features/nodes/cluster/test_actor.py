"""What runs on a machine of a cluster: a process for each connection, calls that may be repeated, leaving when idle."""

import sys

from anyio import create_task_group, fail_after

from fleet.features.nodes.cluster.actor import HostActor
from tests.fleet.fakes import wait_until

COPIES = (sys.executable, "-u", "-I", "-S", "-c", "import sys\nfor line in sys.stdin: print(line, end='')")


async def test_calls_that_are_repeated_are_done_once() -> None:
    actor = HostActor(0.1)
    for _ in range(2):
        assert await actor.open("a", COPIES) == ""
    for _ in range(2):
        assert await actor.send("a", 1, b"one\n")
    assert [await actor.receive("a", 1) for _ in range(2)] == [b"one\n", b"one\n"]
    await actor.send("a", 2, b"two\n")
    assert await actor.receive("a", 2) == b"two\n"
    assert await actor.close("a") == ""
    with fail_after(30):
        assert [await actor.receive("a", 3) for _ in range(2)] == [b"", b""]
        assert not await actor.send("a", 3, b"three\n")
        await actor.leave_when_idle()


async def test_a_connection_that_is_not_there_has_ended() -> None:
    actor = HostActor(60)
    assert not await actor.send("a", 1, b"x")
    assert await actor.receive("a", 1) == b""
    assert await actor.close("a") == ""


async def test_it_leaves_once_no_node_has_run_for_a_while_also_where_no_one_closed_them() -> None:
    actor = HostActor(0.1)
    await actor.open("a", COPIES)
    await actor.open("b", (sys.executable, "-I", "-S", "-c", ""))
    left: list[bool] = []

    async def leave() -> None:
        await actor.leave_when_idle()
        left.append(True)

    with fail_after(30):
        async with create_task_group() as tasks:
            tasks.start_soon(leave)
            await wait_until(lambda: list(actor._streams) == ["a"])
            assert left == []
            await actor.close("a")
            await wait_until(lambda: left == [True])
