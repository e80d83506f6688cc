"""The agents at work: the planner first, and the others in any order."""

import pytest

from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.read.agent_rows import ORDERS, AgentOrder, agent_rows
from fleet.read.run import RunSnapshot
from tests.fleet.core.story import Story, plan_of


@pytest.fixture
def busy() -> Story:
    """`a` waits to land, `b` works and was called twice, `c` has just started."""
    story = Story(Policy(workers=3), plan_of("a", "b", "c"))
    for at, id_ in enumerate(("a", "b"), 1):
        story.happens(f.WorkerStarted(at=at, subtask=id_, number=1))
    story.model_is_called("b")
    story.model_is_called("b")
    story.work_is_done("a")
    return story


def test_an_agent_says_what_it_does_and_costs(busy: Story) -> None:
    rows = {row.subtask: row for row in agent_rows(busy.state)}
    assert {id_: row.phase for id_, row in rows.items()} == {"a": "landing", "b": "working", "c": "starting"}
    assert {id_: row.spend.calls for id_, row in rows.items()} == {"a": 0, "b": 2, "c": 0}
    assert not any(row.is_called or row.is_area for row in rows.values())


@pytest.mark.parametrize("order", ORDERS)
def test_each_order_has_every_agent_and_can_be_reversed(order: AgentOrder, busy: Story) -> None:
    rows = agent_rows(busy.state, order)
    assert {row.subtask for row in rows} == {"a", "b", "c"}
    assert {row.subtask for row in agent_rows(busy.state, order, is_reversed=True)} == {"a", "b", "c"}


def test_those_that_wait_to_land_are_the_last_of_the_busy_ones(busy: Story) -> None:
    assert agent_rows(busy.state)[-1].subtask == "a"
    assert agent_rows(busy.state, "cost")[0].subtask == "b"


def test_the_planner_is_the_first_while_it_is_called() -> None:
    story = Story(Policy(workers=3))
    (row,) = agent_rows(story.state, "subtask", is_reversed=True)
    assert (row.subtask, row.worker, row.phase, row.since) == (None, "planner", "planning", None)
    assert row.is_called
    assert row.number == story.state.planning.open


def test_a_run_without_a_process_has_no_agents(busy: Story) -> None:
    assert RunSnapshot(busy.state, busy.now, alive=False).agents() == ()
