"""A node that gives signs of life and never reports: its order is given to others after a while."""

import math
from dataclasses import replace

import pytest
from anyio import Event, create_task_group, current_time, sleep

from fleet.config.load import default_config
from fleet.core.base.ids import Sha
from fleet.core.plans.plan import Criterion
from fleet.features.nodes.call_proxy import CallProxy, StallTimeout
from fleet.features.nodes.node_config import ROOM_S, patience_s
from fleet.features.nodes.node_orders import NodeLostError
from fleet.ports.agents import Asked
from fleet.ports.operator import SILENT
from fleet.ports.orders import ChecksOrder
from tests.fleet.fakes import wait_until
from tests.fleet.features.nodes.conftest import ScriptedSite, attempt
from tests.fleet.features.nodes.test_calls import KEY, Asking, Service, attempted, remote


@pytest.fixture
def silent(site: ScriptedSite) -> None:
    site.node = Asking(go=Event())  # type: ignore[assignment]


@pytest.mark.usefixtures("silent")
async def test_an_order_of_which_nothing_is_heard_is_given_to_others_and_the_node_rests(site: ScriptedSite) -> None:
    notices = list[str]()
    node = remote(site, Service(), notices=notices)
    node.patience_s = lambda _: 0.05
    with pytest.raises(NodeLostError, match="an order timed out after 0 s"):
        await attempted(node)
    assert any("timed out" in notice for notice in notices)


async def test_while_a_node_waits_for_an_answer_it_need_not_be_heard() -> None:
    service, patience = Service(), StallTimeout(30)
    service.gate = Event()
    async with create_task_group() as tasks:
        desk = CallProxy(KEY, service, SILENT, tasks, patience)
        with patience:
            assert patience.scope.deadline < math.inf
            await desk.take(Asked(0, b"r"))
            patience.heard()
            assert patience.scope.deadline == math.inf
            service.gate.set()
            await wait_until(lambda: patience.scope.deadline < math.inf)
        tasks.cancel_scope.cancel()


async def test_what_is_heard_begins_the_time_again() -> None:
    with StallTimeout(100) as patience:
        before = patience.scope.deadline
        await sleep(0.01)
        patience.heard()
        assert before < patience.scope.deadline <= current_time() + 100
    assert not patience.is_over


def test_it_lasts_twice_as_long_as_what_the_order_may_take() -> None:
    config = default_config()
    setup_s, time_s = config.worktrees.setup_timeout_s, config.workers["coder"].time_s
    work = replace(attempt(), worker="coder")
    checks = tuple(Criterion(criterion="c", run=f"{n}", timeout_s=50) for n in range(3))
    assert patience_s(config, work) == ROOM_S + 2 * (setup_s + time_s)
    assert patience_s(config, ChecksOrder(Sha("c"), checks, lands=False)) == ROOM_S + 2 * (setup_s + 150)
