"""Metrics of nodes: few series, however many nodes there are."""

from dashboards.metrics.catalog import MOST_NAMES, OTHER
from fleet.core.plans.limits import MachineOffer, Machines, Policy
from fleet.core.state import facts as f
from tests.dashboards.metrics.test_metrics import read, scraped, value
from tests.fleet.core.story import Story, plan_of


def test_nodes_are_counted_by_name_and_what_waits_for_one_is_too() -> None:
    machines = Machines(offers={"": MachineOffer(), "big": MachineOffer(labels=("gpu",)), "small": MachineOffer()})
    plan = plan_of("a", "b", labels=("gpu",))
    story = Story(Policy(machines=machines), plan)
    story.happens(greeting("big", labels=("gpu",), workers=1), greeting("small"))
    story.happens(f.WorkerStarted(at=0, subtask="a", number=1, node="big"))
    story.happens(f.NodeLost(at=0, node="small", why="gone"), f.NodeLost(at=0, node="never", why="no route"))
    text = scraped(story)
    assert [value(text, "fleet_nodes", state=state) for state in ("connected", "out", "drained")] == [1, 2, 0]
    assert [value(text, "fleet_node_up", node=node) for node in ("big", "small", "never")] == [1, 0, 0]
    assert (value(text, "fleet_node_attempts", node="big"), value(text, "fleet_node_slots", node="big")) == (1, 1)
    assert value(text, "fleet_node_attempts_begun_total", node="big") == 1
    assert [value(text, "fleet_node_losses_total", node=node) for node in ("big", "small", "never")] == [0, 1, 0]
    assert value(text, "fleet_machine_waits") == 1
    resting = scraped(story, alive=False)
    assert value(resting, "fleet_nodes", state="connected") == 0
    assert "fleet_node_up{" not in resting


def test_more_nodes_than_series_are_counted_together() -> None:
    story = Story(plan=plan_of("a"))
    for number in range(MOST_NAMES + 5):
        story.happens(greeting(f"n{number:02}"))
    story.happens(f.NodeLost(at=0, node=f"n{MOST_NAMES + 4:02}", why="gone"))
    text = scraped(story)
    series = {labels["node"] for name, labels, _ in read(text) if name == "fleet_node_up"}
    assert len(series) == MOST_NAMES + 1
    assert value(text, "fleet_node_up", node=OTHER) == 0
    assert value(text, "fleet_nodes", state="connected") == MOST_NAMES + 4


def greeting(node: str, labels: tuple[str, ...] = (), workers: int = 2) -> f.NodeConnected:
    return f.NodeConnected(
        at=0, node=node, version="1", host="h", processors=2, memory_bytes=1, workers=workers, checks=1, labels=labels
    )
