"""What a rehearsal advises: the least of what the machine has, and only settings that something measured speaks for."""

from dataclasses import replace

from fleet.core.base.ids import Sha
from fleet.core.facts import facts as f
from fleet.features.rehearse.rehearsal_view import (
    MOST_WORKERS,
    GateView,
    MachineView,
    RehearsalOutcome,
    RehearsalView,
    fed_workers,
    rehearsal_view,
)
from tests.fleet.core.story import Story, plan_of

GIB = 1024**3
MACHINE = MachineView(cores=4, memory_bytes=16 * GIB, free_disk_bytes=500 * GIB)
GATE = GateView("make", 3, 3, flaky=False, seconds=1, processor_s=1, peak_mib=100, disk_mib=1, setup_s=0, output="")
TRIAL = f.GateTrial(passed=True, seconds=2.0, processor_s=1.0, peak_bytes=GIB, disk_bytes=0)


def fed(gate: GateView | None = GATE, machine: MachineView = MACHINE, an_hour: float = 1e6) -> tuple[int, str]:
    return fed_workers(machine, gate, an_hour=an_hour, processor_s=1.0)


def test_the_scarcest_thing_limits_the_workers() -> None:
    assert fed() == (4 * 300 // 5, "processor")
    assert fed(replace(GATE, seconds=100, processor_s=0.1, peak_mib=4096)) == (3, "memory")
    assert fed(replace(GATE, disk_mib=100_000)) == (4, "disk")
    assert fed(an_hour=120) == (10, "merge queue")
    assert fed(None, an_hour=10) == (1, "merge queue")
    assert fed(None, replace(MACHINE, cores=1000))[0] == MOST_WORKERS


def viewed(*trials: f.GateTrial, notes: tuple[f.RehearsalNoted, ...] = ()) -> RehearsalView:
    story = Story(plan=plan_of("a", "b"))
    story.happens(f.GateTried(at=1.0, command="make", trials=trials), *notes)
    outcome = RehearsalOutcome(head=Sha("h" * 40), differing=(), clean=True)
    return rehearsal_view(story.state, outcome, MACHINE, now=10.0, processor_s=2.0)


def test_a_gate_whose_answers_differ_is_flaky_and_is_asked_more_often() -> None:
    view = viewed(TRIAL, TRIAL.model_copy(update={"passed": False, "output": "1 failed"}), TRIAL)
    assert view.gate is not None
    assert (view.gate.green, view.gate.tries, view.gate.flaky, view.gate.output) == (2, 3, True, "1 failed")
    assert "checks.reruns" in {setting.key for setting in view.settings}
    assert "checks.reruns" not in {setting.key for setting in viewed(TRIAL, TRIAL).settings}


def test_a_gate_that_was_flaky_anywhere_in_the_run_is_flaky() -> None:
    note = f.RehearsalNoted(at=1.0, what="flaky", subtask="b", text="failed, then passed")
    gate = viewed(TRIAL, notes=(note,)).gate
    assert gate is not None
    assert gate.flaky


def test_without_a_gate_there_is_nothing_to_say_of_one() -> None:
    assert viewed().gate is None


def test_notes_are_in_the_order_of_history() -> None:
    notes = [f.RehearsalNoted(at=1.0, what="red", subtask=id_, text="") for id_ in ("b", None, "a")]
    assert [note.subtask for note in viewed(notes=tuple(notes)).red_in_history] == [None, "a", "b"]


def test_it_succeeds_only_if_everything_landed_in_the_tree_of_history() -> None:
    view = viewed(TRIAL)
    assert not view.succeeded, "nothing landed"
    landed = replace(view, landed=2)
    assert landed.succeeded
    assert not replace(landed, tree_equal=False).succeeded
    assert not replace(landed, clean=False).succeeded
