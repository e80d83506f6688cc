"""The page of nodes, and the node of each agent."""

import pytest
from rich.cells import cell_len

from dashboards.terminal.lines import PageOptions
from dashboards.terminal.pages.agents import agents_page, nodes_page
from dashboards.terminal.pages.overview import overview_page
from fleet.core.plans.limits import MachineOffer, Machines, Policy
from tests.dashboards.terminal.pages.test_pages import SIZES, drawn, watch
from tests.dashboards.terminal.test_snapshots import nodes_story
from tests.fleet.core.story import Story, plan_of


@pytest.mark.parametrize("width", SIZES)
def test_the_page_of_nodes_shows_what_each_does_and_what_waits(width: int) -> None:
    watched, state = watch(nodes_story().facts)
    page = nodes_page(watched, state, PageOptions(width=width))
    assert list(page.keys) == ["n:big", "n:gone", "n:idle", "", "", "s:b"]
    lines = drawn(page, width)
    assert max(map(cell_len, lines[:4])) <= width
    if width >= 120:
        shown = (("● connected", "1 of 1", "+2.5 s", "gpu"), ("✘ out", "no route to host"), ("◌ drained", "by ada"))
        assert [[part in line for part in parts] for parts, line in zip(shown, lines[1:], strict=False)] == [
            [True] * len(parts) for parts in shown
        ]
        assert "waits for a free slot on a machine with the label gpu" in lines[-1]


def test_agents_are_shown_with_their_node_once_a_run_has_nodes() -> None:
    watched, state = watch(nodes_story().facts)
    head, *rows = drawn(agents_page(watched, state, PageOptions(width=120)))
    assert "node" in head
    assert [row for row in rows if " a " in row and " big " in row]
    watched, state = watch(Story(plan=plan_of("a")).facts)
    assert " node " not in drawn(agents_page(watched, state, PageOptions(width=120)))[0]


def test_a_run_without_nodes_says_how_to_add_one() -> None:
    watched, state = watch(Story(plan=plan_of("a")).facts)
    page = nodes_page(watched, state, PageOptions(width=120))
    assert (list(page.keys), "fleet nodes add NAME" in page.empty) == ([], True)


def test_an_overview_without_agents_says_what_the_next_subtask_waits_for() -> None:
    offers = {"": MachineOffer(lands=True), "big": MachineOffer(labels=("gpu",), lands=True)}
    story = Story(Policy(machines=Machines(offers=offers)), plan_of("a", "b", labels=("gpu",)))
    watched, state = watch(story.facts)
    rows = drawn(overview_page(watched, state, PageOptions(width=200, height=30)))
    said = "a waits for a machine with the label gpu: node big is out: not connected yet (and 1 more: press 8)."
    assert any(said in row for row in rows)
