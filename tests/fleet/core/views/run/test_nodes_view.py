"""What a run says of its nodes, and of the subtasks that wait for one."""

from dashboards.text.plan_review import plan_lines
from dashboards.text.tables import MOST_NODES, status_lines, subtask_lines
from fleet.core.plans.limits import MachineOffer, Machines, Policy
from fleet.core.plans.plan import Plan
from fleet.core.state import facts as f
from fleet.core.views.nodes_view import node_views, waiting_for_machines
from fleet.core.views.run_view import status_view
from fleet.core.views.subtask_view import subtask_view
from tests.fleet.core.story import WHO, Story, plan_of

OFFERS = {"": MachineOffer(lands=True), "big": MachineOffer(labels=("gpu",), lands=True), "small": MachineOffer()}


def story() -> Story:
    """Three subtasks on two nodes, one that needs a label; then one node is lost."""
    labelled = plan_of("x", "y", labels=("gpu",)).subtasks
    plan = Plan(goal="g", subtasks=(*plan_of("a", "b").subtasks, *labelled))
    told = Story(Policy(machines=Machines(offers=OFFERS)), plan)
    told.happens(greeting("big", ("gpu",)), greeting("small"))
    told.happens(f.WorkerStarted(at=0, subtask="a", number=1, node="small"))
    told.happens(f.WorkerStarted(at=0, subtask="b", number=1, node="small"))
    told.happens(f.WorkerStarted(at=0, subtask="x", number=1, node="big"))
    return told


def greeting(node: str, labels: tuple[str, ...] = ()) -> f.NodeConnected:
    return f.NodeConnected(
        at=0,
        node=node,
        version="1",
        host=f"{node}.example",
        processors=4,
        memory_bytes=8,
        workers=1 if labels else 4,
        checks=2,
        labels=labels,
        skew_s=-3.5,
        commits=2,
        lands=bool(labels),
    )


def test_each_node_is_shown_with_its_slots_and_what_it_did() -> None:
    told = story()
    told.attempt_fails("a", "infrastructure")
    told.happens(f.NodeLost(at=0, node="small", why="no route to host"))
    big, small = node_views(told.state, alive=True)
    assert (big.name, big.status, big.working, big.workers, big.attempts, big.failed) == (
        "big",
        "connected",
        1,
        1,
        1,
        0,
    )
    assert (big.labels, big.lands, big.skew_s, big.host) == (("gpu",), True, -3.5, "big.example")
    assert (small.status, small.why, small.working, small.attempts) == ("out", "no route to host", 1, 2)
    assert (small.failed, small.losses) == (1, 1)
    assert [node.working for node in node_views(told.state, alive=False)] == [0, 0]


def test_who_drained_a_node_is_named() -> None:
    told = story()
    told.happens(f.NodeDrained(at=0, node="big", by=WHO))
    big, _ = node_views(told.state, alive=True)
    assert (big.status, big.why) == ("drained", f"by {WHO}")


def test_a_run_without_nodes_says_nothing_of_them() -> None:
    told = Story(plan=plan_of("a"))
    status = status_view(told.state, 0.0, alive=True)
    assert (status.nodes, status.waiting_for_machines) == ((), {})
    assert [line for line in status_lines(status) if "nodes" in line] == []


def test_a_status_says_which_subtask_waits_for_which_machine() -> None:
    told = story()
    assert list(waiting_for_machines(told.state, 0.0)) == ["y"]
    lines = status_lines(status_view(told.state, 0.0, alive=True))
    [waits] = [line for line in lines if "WAITING" in line]
    assert waits == "  WAITING    y: waits for a free slot on a machine with the label gpu: big (1 of 1 in use)"
    rows = [line for line in lines if "at work" in line]
    assert [row.split()[:3] for row in rows] == [["nodes", "big", "connected"], ["small", "connected", "2"]]
    told.happens(f.RunEnded(at=0, ending="cancelled", why="so"))
    assert waiting_for_machines(told.state, 0.0) == {}


def test_a_subtask_shows_the_node_of_each_attempt_and_check_and_what_it_waits_for() -> None:
    told = story()
    check = f.CheckRun(criterion="it works", command="check a", passed=True, node="big")
    told.happens(f.AttemptCommitted(at=0, subtask="a", number=1, commit="1" * 40, paths=("a",), report=DONE))
    told.happens(f.AttemptVerified(at=0, subtask="a", number=1, checks=(check,)))
    view = subtask_view(told.state, told.state.spec("a"), 0.0)
    assert ([attempt.node for attempt in view.attempts], view.waits_for) == (["small"], "")
    text = subtask_lines(view)
    assert any(line.startswith("Attempt 1  coder on small") for line in text)
    assert any(line.strip().startswith("passed") and "on big" in line for line in text)
    waiting = subtask_lines(subtask_view(told.state, told.state.spec("y"), 0.0))
    assert "  labels  gpu" in waiting
    assert any(line.startswith("  WAITING waits for a free slot") for line in waiting)


DONE = f.Report(status="done", summary="did it")


def test_a_status_lists_the_first_of_very_many_nodes() -> None:
    told = Story(plan=plan_of("a"))
    told.happens(*(greeting(f"n{number:02}") for number in range(MOST_NODES + 3)))
    lines = status_lines(status_view(told.state, 0.0, alive=True))
    assert sum("at work" in line for line in lines) == MOST_NODES
    assert any(line.strip() == "and 3 more: fleet status r --json" for line in lines)


def test_a_plan_says_which_machine_a_subtask_needs() -> None:
    lines = plan_lines(Plan(goal="g", subtasks=plan_of("x", labels=("gpu", "big")).subtasks), ())
    assert any("on a machine with gpu, big" in line for line in lines)
