"""What views say over time and of very many things; tests/corpus has what they say of a run as it is."""

from dashboards.text.plan_review import plan_lines
from dashboards.text.tables import MOST_NODES, status_lines, subtask_lines
from fleet.core.facts import facts as f
from fleet.core.plans.limits import MachineOffer, Machines, Policy
from fleet.read.agent_rows import waiting_for_machines
from fleet.read.incident_view import EVIDENCE, excerpt
from fleet.read.run import status_view
from fleet.read.subtask_view import subtask_view
from tests.fleet.core.story import Story, connected, plan_of


def test_evidence_is_cut_to_its_end_at_a_line() -> None:
    assert excerpt("  short\n") == "short"
    long = "".join(f"line {number}\n" for number in range(1000))
    cut = excerpt(long)
    assert len(cut) <= EVIDENCE + 2
    assert cut.startswith("…\nline ")
    assert cut.endswith("line 999")
    assert len(excerpt("x" * 10**6)) == EVIDENCE + 2


def test_a_status_lists_the_first_of_very_many_nodes() -> None:
    story = Story(plan=plan_of("a"))
    story.happens(*(connected(f"n{number:02}") for number in range(MOST_NODES + 3)))
    lines = status_lines(status_view(story.state, 0.0, alive=True))
    assert sum(" busy" in line for line in lines) == MOST_NODES
    assert any(line.strip() == "and 3 more: fleet status r --json" for line in lines)


def test_a_plan_says_which_machine_a_subtask_needs() -> None:
    lines = plan_lines(plan_of("x", labels=("gpu", "big")), ())
    assert any("on a machine with gpu, big" in line for line in lines)


def test_a_subtask_says_which_machine_it_waits_for_until_the_run_ends() -> None:
    offers = {"": MachineOffer(), "big": MachineOffer(labels=("gpu",), lands=True)}
    story = Story(Policy(machines=Machines(offers=offers)), plan_of("x", "y", labels=("gpu",)))
    story.happens(connected("big", labels=("gpu",), lands=True))
    lines = subtask_lines(subtask_view(story.state, story.spec("y"), 0.0))
    assert "  labels  gpu" in lines
    assert "  WAITING waits for a free slot on a machine with the label gpu: big (1 of 1 in use)" in lines
    story.happens(f.RunEnded(at=0, ending="cancelled", why="so"))
    assert waiting_for_machines(story.state, 0.0) == {}
    assert subtask_view(story.state, story.spec("y"), 0.0).waits_for == ""
