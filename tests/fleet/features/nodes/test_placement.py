"""Where an order goes, and what happens where it can go nowhere."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from anyio import create_task_group, fail_after
from anyio.lowlevel import checkpoint

from fleet.core.base.ids import RunId
from fleet.features.nodes.placement import Placement
from fleet.features.nodes.remote_node import RemoteNode
from fleet.features.nodes.reports import Spool
from fleet.ports.orders import AttemptOrder, AttemptResult
from fleet.ports.worktrees import EffectError
from tests.fleet.fakes import wait_until
from tests.fleet.features.nodes.conftest import ScriptedNode, ScriptedSite, attempt
from tests.fleet.features.nodes.test_calls import CountedMeter, Service, remote

GPU = frozenset({"gpu"})
ORDER = replace(attempt(), labels=GPU)


@dataclass
class Paying(CountedMeter):
    """Satisfies what a placement asks of a meter."""

    def may_call(self) -> bool:
        return True


@dataclass
class Trying:
    """An attempt that is placed, in a task of its own."""

    placement: Placement
    order: AttemptOrder = ORDER
    ends: list[AttemptResult | EffectError] = field(default_factory=list)

    async def run(self) -> None:
        async def tell(_: object) -> None:
            pass

        try:
            self.ends.append(await self.placement.attempt(self.order, cast("Any", Paying()), tell))
        except EffectError as error:
            self.ends.append(error)


def node_with(name: str, folder: Path, *lacks: str) -> RemoteNode:
    spool = Spool(folder / name)
    spool.make()
    site = ScriptedSite(ScriptedNode(), spool, lacks)
    node = remote(site, Service(), notices=[])
    node.name, node.labels = name, GPU
    return node


@asynccontextmanager
async def placed(*nodes: RemoteNode) -> AsyncIterator[Trying]:
    placement = Placement(RunId("r"), cast("Any", None), local_workers=1, local_checks=1, nodes=nodes, stays={})
    async with create_task_group() as tasks:
        for node in nodes:
            node.freed = placement.wake
        tasks.start_soon(nodes[0].run)
        await nodes[0].wait_tried()
        trying = Trying(placement)
        tasks.start_soon(trying.run)
        yield trying
        tasks.cancel_scope.cancel()


async def test_what_no_machine_with_its_labels_has_the_program_for_fails_and_does_not_wait(tmp_path: Path) -> None:
    async with placed(node_with("one", tmp_path, "step")) as trying:
        with fail_after(10):
            await wait_until(lambda: bool(trying.ends))
    [error] = trying.ends
    assert isinstance(error, EffectError)
    assert error.failure.kind == "tool"
    assert error.failure.summary == (
        "worker 'step' is not installed on node one, and no other machine has the label gpu"
    )


async def test_it_waits_for_a_machine_that_may_have_the_program_and_goes_there(tmp_path: Path) -> None:
    one, two = node_with("one", tmp_path, "step"), node_with("two", tmp_path)
    async with placed(one, two) as trying, create_task_group() as tasks:
        for _ in range(100):
            await checkpoint()
        assert trying.ends == []
        tasks.start_soon(two.run)
        with fail_after(10):
            await wait_until(lambda: bool(trying.ends))
        tasks.cancel_scope.cancel()
    [result] = trying.ends
    assert isinstance(result, AttemptResult)
    assert (one.finished, two.finished) == (0, 1)


async def test_what_asks_for_no_labels_is_done_here_where_a_node_lacks_the_program(tmp_path: Path) -> None:
    async with placed(node_with("one", tmp_path, "step")) as trying:
        placed_at = await trying.placement._place_attempt("key", attempt(), cast("Any", Paying()))
    assert placed_at is None
