"""One node of a run: what makes it rest, and what its failures mean on this machine."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from anyio import create_task_group, fail_after

from fleet.core.state.facts import CheckRun, Failure, NodeConnected, NodeLost, WarningNoted
from fleet.nodes import remote_node
from fleet.nodes.remote_node import RemoteNode
from fleet.ports.nodes import AttemptMeter, AttemptResult, NodeFailedError, NodeLostError, Progress
from fleet.ports.worktrees import Change, EffectError, SetupFailedError
from tests.fleet.fakes import wait_until
from tests.fleet.nodes.conftest import ScriptedSite, attempt
from tests.fleet.nodes.test_calls import Meter, Service, remote

NEEDED = 3


@dataclass
class Remote:
    """A node over a stream, and what was said of it."""

    node: RemoteNode
    said: list[NodeConnected | NodeLost | WarningNoted] = field(default_factory=list)

    async def attempt(self, id_: str, number: int = 1) -> AttemptResult:
        async def tell(_: Progress) -> None:
            pass

        meter: AttemptMeter = Meter()  # type: ignore[assignment]
        with fail_after(10):
            return await self.node.attempt(f"r/attempt/{id_}/{number}", attempt(id_, number), meter, tell)

    async def fails(self, times: int) -> None:
        for number in range(times):
            with pytest.raises(NodeFailedError, match="node one: no room"):
                await self.attempt("broken", number + 1)


@asynccontextmanager
async def connected_node(site: ScriptedSite) -> AsyncIterator[Remote]:
    said = list[NodeConnected | NodeLost | WarningNoted]()
    node = remote(site, Service(), notices=[])
    node.notice = said.append
    async with create_task_group() as tasks:
        tasks.start_soon(node.run)
        await node.wait_tried()
        yield Remote(node, said)
        tasks.cancel_scope.cancel()


async def test_a_node_that_fails_again_and_again_rests_and_is_asked_later(
    site: ScriptedSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_node, "REST_S", 0.0)
    async with connected_node(site) as here:
        await here.fails(NEEDED - 1)
        assert not here.node.out
        assert [type(fact) for fact in here.said] == [NodeConnected]
        await here.fails(1)
        lost = here.said[1]
        assert isinstance(lost, NodeLost)
        assert lost.why.startswith("it can't carry out what it is given")
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
    async def full(commit: str, pack: bytes) -> None:
        del commit, pack
        raise EffectError(Failure(kind="infrastructure", summary="No space left on device"))

    site.store = full  # type: ignore[method-assign]
    site.commits = none  # type: ignore[method-assign]
    async with connected_node(site) as here:
        with pytest.raises(NodeLostError, match="No space left"):
            await here.attempt("a")
        assert not here.node.banned
        assert "No space left" in here.node.out


async def none() -> list[str]:
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
