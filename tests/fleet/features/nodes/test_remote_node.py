"""One node of a run: what makes it rest, and what its failures mean on this machine."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from anyio import create_task_group, fail_after

from fleet.core.base.ids import Sha
from fleet.core.facts.facts import CheckRun, Failure, NodeConnected, NodeLost, SetupRan, SetupRun, WarningNoted
from fleet.core.plans.plan import Criterion
from fleet.features.nodes.host import Records
from fleet.features.nodes.messages import LONGEST_LOG, LONGEST_LOGS
from fleet.features.nodes.node_orders import NodeLostError
from fleet.features.nodes.remote_node import REST_S, RemoteNode
from fleet.ports.agents import Meter
from fleet.ports.orders import AttemptResult, ChecksOrder, NodeFailedError, Progress
from fleet.ports.worktrees import Change, EffectError, SetupFailedError
from tests.fleet.fakes import wait_until
from tests.fleet.features.nodes.conftest import SHA, ScriptedSite, attempt
from tests.fleet.features.nodes.test_calls import CountedMeter, Kept, Service, remote

NEEDED = 3
MOST_LOGS = LONGEST_LOGS // LONGEST_LOG
"""Of the longest ones, in one report."""


@dataclass
class Remote:
    """A node over a stream, and what was said of it."""

    node: RemoteNode
    said: list[NodeConnected | NodeLost | SetupRan | WarningNoted] = field(default_factory=list)

    async def attempt(self, id_: str, number: int = 1) -> AttemptResult:
        async def tell(_: Progress) -> None:
            pass

        meter: Meter = CountedMeter()  # type: ignore[assignment]
        with fail_after(10):
            return await self.node.attempt(f"r/attempt/{id_}/{number}", attempt(id_, number), meter, tell)

    async def fails(self, times: int) -> None:
        for number in range(times):
            with pytest.raises(NodeFailedError, match="node one: no room"):
                await self.attempt("broken", number + 1)


@asynccontextmanager
async def connected_node(site: ScriptedSite, *, rest_s: float = REST_S) -> AsyncIterator[Remote]:
    said = list[NodeConnected | NodeLost | SetupRan | WarningNoted]()
    node = remote(site, Service(), notices=[])
    node.notice, node.rest_s = said.append, rest_s
    async with create_task_group() as tasks:
        tasks.start_soon(node.run)
        await node.wait_tried()
        yield Remote(node, said)
        tasks.cancel_scope.cancel()


async def test_a_node_that_fails_again_and_again_rests_and_is_asked_later(site: ScriptedSite) -> None:
    async with connected_node(site, rest_s=0.0) as here:
        await here.fails(NEEDED - 1)
        assert not here.node.out
        assert [type(fact) for fact in here.said] == [NodeConnected]
        await here.fails(1)
        lost = here.said[1]
        assert isinstance(lost, NodeLost)
        assert lost.why.startswith("paused for")
        with fail_after(10):
            await wait_until(lambda: not here.node.out)
        assert [type(fact) for fact in here.said[2:]] == [NodeConnected]
        assert isinstance((await here.attempt("a")).committed, Change)


async def test_one_order_that_is_done_shows_that_a_node_is_well(site: ScriptedSite) -> None:
    async with connected_node(site) as here:
        for _ in range(2):
            await here.fails(NEEDED - 1)
            await here.attempt("a")
        assert not here.node.out


async def test_a_node_that_can_not_take_objects_rests_at_once_and_the_order_goes_elsewhere(site: ScriptedSite) -> None:
    async def full(commit: Sha, pack: object) -> None:
        del commit, pack
        raise EffectError(Failure(kind="infrastructure", summary="No space left on device"))

    site.store = full  # type: ignore[method-assign]
    site.commits = none  # type: ignore[method-assign]
    async with connected_node(site) as here:
        with pytest.raises(NodeLostError, match="No space left"):
            await here.attempt("a")
        assert not here.node.banned
        assert "No space left" in here.node.out


async def none() -> list[Sha]:
    return []


async def test_what_a_node_calls_its_failure_uses_up_no_attempt(site: ScriptedSite) -> None:
    """A node may say that a subtask is too complex for it: it has no say in that."""
    site.node.failure = Failure(kind="too_complex", summary="no room")
    async with connected_node(site) as here:
        with pytest.raises(NodeFailedError) as raised:
            await here.attempt("broken")
    assert raised.value.failure.kind == "infrastructure"


async def test_a_node_on_which_the_set_up_of_an_attempt_fails_rests_and_one_that_is_told_so_does_at_once(
    site: ScriptedSite,
) -> None:
    """A commit may break its own set-up; the base of an attempt does not."""
    red = CheckRun(criterion="the set-up", command="make deps", passed=False)
    site.node.error = SetupFailedError(Failure(kind="configuration", summary="no npm"), red)
    async with connected_node(site) as here:
        for number in range(NEEDED):
            assert not here.node.out
            with pytest.raises(SetupFailedError, match="node one: no npm"):
                await here.attempt("broken", number + 1)
        assert "no npm" in here.node.out
    async with connected_node(site) as here:
        here.node.rest("3 checks in a row failed there")
        assert here.node.out.endswith("3 checks in a row failed there")
        assert not here.node.banned


async def test_the_logs_of_checks_and_set_ups_come_along_and_are_kept_here(site: ScriptedSite) -> None:
    """Those of failures first, as far as they fit; a name that another log has on this machine means nothing."""
    setup = SetupRun(
        commit=SHA, check=CheckRun(criterion="the set-up", command="make deps", passed=True, log="checks/s")
    )
    on_disk = {"checks/0": b"green", "checks/1": b"r" * (LONGEST_LOG + 1), "checks/s": b"$ make deps"}

    async def check(order: ChecksOrder) -> tuple[CheckRun, ...]:
        return tuple(
            CheckRun(criterion=each.criterion, command=each.run or "", passed=not at, log=f"checks/{at}")
            for at, each in enumerate(order.criteria)
        )

    site.node.check = check  # type: ignore[method-assign]
    finished = iter([(setup,)])
    site.records = Records(lambda: next(finished, ()), lambda name: on_disk.pop(name, b""))
    criteria = tuple(Criterion(criterion=f"c{at}", run=f"run {at}") for at in range(3))
    async with connected_node(site) as here:
        with fail_after(10):
            runs = await here.node.check("r/checks/a/1", ChecksOrder(SHA, criteria))
        objects = here.node.objects
    assert isinstance(objects, Kept)
    assert objects.kept == {
        "None make deps": b"[on node one]\n$ make deps",
        f"{SHA} run 0": b"[on node one]\ngreen",
        f"{SHA} run 1": b"[on node one]\n" + b"r" * LONGEST_LOG,
    }
    assert [run.log for run in runs] == ["checks/2.log", "checks/3.log", ""]
    [ran] = [fact.setup for fact in here.said if isinstance(fact, SetupRan)]
    assert (ran.commit, ran.check.command, ran.check.node, ran.check.log) == (SHA, "make deps", "one", "checks/1.log")
    assert on_disk == {}


def test_logs_of_failures_travel_before_others_and_no_more_than_fit() -> None:
    text = bytes(LONGEST_LOG)
    runs = [
        CheckRun(criterion="c", command="run", passed=at != MOST_LOGS, log=f"checks/{at}")
        for at in range(MOST_LOGS + 1)
    ]
    logs = Records(take_log=lambda _: text).logs(runs)
    assert list(logs) == [f"checks/{at}" for at in (MOST_LOGS, *range(MOST_LOGS - 1))]
    assert sum(map(len, logs.values())) <= LONGEST_LOGS
