"""Labels: what needs a machine that is not there waits and says for what; what can never be done is refused."""

import pytest

from fleet.core.facts import facts as f
from fleet.core.plans.limits import MachineOffer, Machines, Policy
from fleet.core.plans.parameters import read_plan
from fleet.core.plans.plan import Criterion, Plan, Subtask
from fleet.core.plans.revision import PlanContext, Problem
from fleet.core.state.machines import machine_problem
from fleet.read.agent_rows import node_views
from tests.fleet.core.story import WHO, Story, plan_of
from tests.fleet.core.story import connected as node_connected

GPU = MachineOffer(labels=("gpu",), lands=True)
MACHINES = Machines(
    offers={"": MachineOffer(lands=True), "builder": GPU}, workers={"trainer": ("gpu",)}, stays=("here",)
)


def connected(
    node: str = "builder", workers: int = 1, labels: tuple[str, ...] = ("gpu",), part_of: str = ""
) -> f.NodeConnected:
    return node_connected(node, workers=workers, labels=labels, lands=True, part_of=part_of)


def story_of(*plain: str, machines: Machines = MACHINES) -> Story:
    """Two subtasks that need a GPU, and plain ones."""
    labelled = plan_of("x", "y", labels=("gpu",))
    return Story(Policy(machines=machines), Plan(goal="g", subtasks=(*labelled.subtasks, *plan_of(*plain).subtasks)))


def running(story: Story) -> list[str]:
    return sorted(subtask.id for subtask, _ in story.state.running())


def waits(story: Story, id_: str) -> str:
    return machine_problem(story.state, story.spec(id_))


def test_what_needs_a_label_starts_only_where_a_machine_with_it_has_a_slot() -> None:
    story = story_of("a", "b")
    assert running(story) == ["a", "b"]
    assert waits(story, "x") == "waits for a machine with the label gpu: node builder is unavailable: not connected yet"
    assert waits(story, "a") == ""
    never = waits(Story(Policy(machines=MACHINES), plan_of("z", labels=("tpu",))), "z")
    assert never.startswith("needs a machine with the label tpu, and none has it. ")
    story.happens(connected())
    assert running(story) == ["a", "b", "x"]
    assert waits(story, "y") == "waits for a free slot on a machine with the label gpu: builder (1 of 1 in use)"
    story.attempt_fails("x", "infrastructure")
    assert running(story) == ["a", "b", "y"]


def test_what_no_machine_with_the_label_has_the_program_for_is_started_to_fail_with_that_reason() -> None:
    """One that is not connected yet may have it; one that is not used any more never will."""
    offers = {**MACHINES.offers, "other": GPU}
    story = story_of(machines=MACHINES.model_copy(update={"offers": offers}))
    lacks = {"lacks": (story.spec("x").worker,)}
    story.happens(connected().model_copy(update=lacks))
    assert running(story) == []
    assert waits(story, "x") == (
        "waits for a machine with the label gpu: worker 'coder' is not installed on node builder; "
        "node other is unavailable: not connected yet"
    )
    story.happens(f.NodeLost(at=0, node="other", why="it lied", banned=True))
    assert running(story) == ["x", "y"]
    assert waits(story, "x") == (
        "worker 'coder' is not installed on node builder, and no other machine has the label gpu"
    )
    again = story_of(machines=MACHINES.model_copy(update={"offers": offers}))
    again.happens(connected().model_copy(update=lacks), connected("other"))
    assert running(again) == ["x"], "where its program is"


def test_an_attempt_without_labels_that_works_on_the_node_holds_its_slot() -> None:
    story = Story(
        Policy(machines=MACHINES),
        Plan(goal="g", subtasks=(*plan_of("x needs a", labels=("gpu",)).subtasks, *plan_of("a", "b").subtasks)),
    )
    story.happens(connected())
    story.happens(f.WorkerStarted(at=0, subtask="b", number=1, node="builder"))
    story.landed("a")
    assert running(story) == ["b"]
    story.happens(connected(workers=2))
    assert running(story) == ["b", "x"]


def test_this_machine_s_own_labels_count_and_bound_nothing() -> None:
    offers = {"": MachineOffer(labels=("gpu", "big"), lands=True)}
    assert running(story_of("a", machines=Machines(offers=offers))) == ["a", "x", "y"]


def test_a_drained_node_gets_nothing_new_until_it_is_undrained() -> None:
    story = story_of()
    story.happens(f.NodeDrained(at=0, node="builder", by=WHO), connected())
    assert running(story) == []
    assert waits(story, "x") == "waits for a machine with the label gpu: node builder is drained"
    story.happens(f.NodeUndrained(at=0, node="builder", by=WHO))
    assert running(story) == ["x"]


def test_a_node_that_is_lost_is_named_with_the_reason_and_one_that_was_added_counts() -> None:
    story = story_of()
    story.happens(f.NodeLost(at=0, node="builder", why="no route to host"))
    assert waits(story, "x") == "waits for a machine with the label gpu: node builder is unavailable: no route to host"
    assert story.state.warnings == ("node builder is unavailable: no route to host",)
    story.happens(connected("other", labels=("gpu", "arm")))
    assert running(story) == ["x"]


def test_a_cluster_that_is_drained_gets_nothing_new_on_any_of_its_machines() -> None:
    story = story_of(machines=Machines(offers={"": MachineOffer(lands=True), "ray": GPU}))
    machines = (connected("ray-1", part_of="ray"), connected("ray-2", part_of="ray"))
    story.happens(f.NodeDrained(at=0, node="ray", by=WHO), *machines)
    assert running(story) == []
    assert waits(story, "x").endswith("node ray is drained; node ray-1 is drained; node ray-2 is drained")
    views = [(view.name, view.status, view.why) for view in node_views(story.state, alive=True)]
    assert views == [("ray-1", "drained", f"by {WHO}"), ("ray-2", "drained", f"by {WHO}")]
    story.happens(f.NodeUndrained(at=0, node="ray", by=WHO))
    assert running(story) == ["x", "y"]
    assert [view.status for view in node_views(story.state, alive=True)] == ["connected", "connected"]


def test_another_engine_connects_to_all_nodes_again_and_keeps_who_is_drained() -> None:
    story = story_of()
    story.happens(connected(), f.NodeDrained(at=0, node="builder", by=WHO))
    story.happens(f.EngineStarted(at=1, epoch=2, pid=1, host="here", version="1"))
    node = story.state.nodes["builder"]
    assert (node.out, node.drained_by) == ("not connected yet", WHO)


def test_losses_count_only_what_was_connected() -> None:
    story = story_of()
    story.happens(f.NodeLost(at=0, node="builder", why="no route"), connected())
    story.happens(f.NodeLost(at=0, node="builder", why="gone"), f.NodeLost(at=0, node="builder", why="no route"))
    assert story.state.nodes["builder"].losses == 1


def test_what_replays_a_result_asks_for_no_machine() -> None:
    relanding = f.Relanding(run="earlier", branch="main", since="1", result="2")
    story = Story(Policy(machines=MACHINES), plan_of("x", labels=("gpu",)), relanding=relanding)
    assert waits(story, "x") == ""


# ---- what can never be done


def spec(worker: str = "coder", labels: tuple[str, ...] = (), run: str | None = "true") -> Subtask:
    check = Criterion(criterion="worker_succeeded" if run is None else "c", run=run, fails_before=run is not None)
    return Subtask(id="x", title="X", goal="x", acceptance=(check,), worker=worker, labels=labels)


@pytest.mark.parametrize(
    ("subtask", "offers", "why"),
    [
        (
            spec(labels=("tpu",)),
            {},
            "none has it. Set nodes.NAME.labels, or box.labels for this machine (known labels: gpu)",
        ),
        (spec("trainer"), {"builder": MachineOffer()}, "no labels are defined"),
        (spec("here", ("gpu",)), {}, "worker 'here' runs only on this machine"),
        (spec("trainer"), {"builder": MachineOffer(labels=("gpu",), works=False)}, "builder does not run attempts"),
        (spec(labels=("gpu",)), {"builder": MachineOffer(labels=("gpu",))}, "may test merged trees"),
    ],
)
def test_a_subtask_that_no_machine_can_ever_do_is_refused_with_the_plan(
    subtask: Subtask, offers: dict[str, MachineOffer], why: str
) -> None:
    machines = MACHINES.model_copy(update={"offers": {**MACHINES.offers, **offers}})
    document = {"goal": "g", "subtasks": [subtask.model_dump(mode="json")]}
    problem = only_problem(read_plan(document, PlanContext(machines=machines)))
    assert problem.path == ("subtasks[0].labels" if subtask.labels else "subtasks[0].worker")
    assert why in problem.message
    assert isinstance(read_plan(document, PlanContext()), Plan)


def only_problem(read: Plan | tuple[Problem, ...]) -> Problem:
    assert not isinstance(read, Plan)
    [problem] = read
    return problem


@pytest.mark.parametrize(
    "subtask", [spec(), spec(labels=("gpu",)), spec("trainer"), spec("trainer", ("gpu",), run=None)], ids=range(4)
)
def test_a_subtask_that_a_machine_can_do_is_accepted(subtask: Subtask) -> None:
    assert MACHINES.problem(subtask) is None


def test_what_is_no_label_is_refused() -> None:
    document = {"goal": "g", "subtasks": [{**spec().model_dump(mode="json"), "labels": ["a b"]}]}
    assert only_problem(read_plan(document)).path == "subtasks[0].labels[0]"
