"""What a commit done again is likely to cost: measured where there is enough of it, assumed elsewhere."""

from dataclasses import replace
from pathlib import Path

import pytest

from fleet.app.wiring import Wiring
from fleet.cli.live.task_estimate import CALLS, ENOUGH, task_estimate
from fleet.config.load import default_config
from fleet.runs.journal import Journal
from fleet.runs.run_folder import make_state_dir, new_run
from tests.fleet.core.story import Story, plan_of

SETTINGS = Wiring(default_config(), {}).agents(Path())
MODEL = SETTINGS.worker_model


def earlier_run(state_dir: Path, *dollars: float) -> None:
    names = [f"s{number}" for number in range(len(dollars))]
    story = Story(plan=plan_of(*names, model=MODEL))
    for name, cost in zip(names, dollars, strict=True):
        story.model_is_called(name, cost)
    story.landed(*names)
    facts = [fact.model_copy(update={"model": MODEL}) if fact.kind == "model_called" else fact for fact in story.facts]
    make_state_dir(state_dir)
    with Journal.create(new_run(state_dir, "goal", None).journal) as journal:
        journal.append(facts)


def test_without_earlier_runs_it_is_assumed_and_says_so(tmp_path: Path) -> None:
    estimate = task_estimate(tmp_path, SETTINGS, "coder")
    assert estimate.model == MODEL
    assert estimate.dollars is not None
    assert 0 < estimate.dollars < 1
    assert estimate.because.startswith(f"assumed: {CALLS} calls")


def test_with_enough_of_them_it_is_what_they_cost_in_the_middle(tmp_path: Path) -> None:
    earlier_run(tmp_path, 0.1, 0.2, 0.3, 0.4, 9.0)
    estimate = task_estimate(tmp_path, SETTINGS, "coder")
    assert estimate.dollars == pytest.approx(0.3)
    assert f"{ENOUGH} subtasks of earlier runs" in estimate.because


def test_a_price_that_is_not_known_is_not_guessed(tmp_path: Path) -> None:
    unknown = replace(SETTINGS, worker_model="some-model")
    assert task_estimate(tmp_path, unknown, "coder").dollars is None
    program = replace(SETTINGS.workers["coder"], kind="command", models=())
    programs = replace(SETTINGS, workers={"coder": program})
    estimate = task_estimate(tmp_path, programs, "coder")
    assert (estimate.model, estimate.dollars) == (None, None)
