"""Estimates as people see them: before a run without a call, in the run's journal, and beside what it came to."""

from pathlib import Path

import pytest

from fleet.core.state import facts as f
from fleet.runs.journal import Journal
from tests.e2e.conftest import Serve
from tests.e2e.stage import Stage, script, subtask

NOBODY = "http://127.0.0.1:9"  # a port at which nothing listens
PLAN = """
goal = "Write"

[[subtasks]]
id = "one"
title = "Write one"
goal = "Write one.txt."
acceptance = [{ criterion = "it is there", run = "grep -qx one one.txt" }]
"""


def test_a_plan_is_estimated_without_a_call(stage: Stage, repository: Path) -> None:
    path = stage.room / "plan.toml"
    path.write_text(PLAN)
    asked = ("run", "--plan", str(path), "--estimate", "--base-url", NOBODY, "--repo", str(repository))
    stage.fleet(*asked, "--workers", "3").ended(0).says(
        "Forecast: $", "nine of ten runs at most", "with 3 workers at once", "(rests on assumptions alone)"
    )
    said = stage.fleet(*asked, "--budget", "0.0001", "--json").ended(0).json
    assert said["forecast"]["subtasks"] == 1
    assert said["forecast"]["dollars"]["median"] < said["forecast"]["dollars"]["p90"]
    assert (said["earlier"], said["budget_dollars"], said["is_enough"]) == (None, 0.0001, False)
    assert stage.runs == []


def test_an_epic_is_estimated_by_earlier_ones_and_not_without(stage: Stage, repository: Path, model: Serve) -> None:
    url = model(script(subtask("one"), subtask("two", "one")))
    asked = ("run", "Write", "--base-url", url, "--repo", str(repository))
    stage.fleet(*asked, "--estimate").ended(0).says("unknown: there is no plan yet", "fleet run --plan plan.toml")
    assert stage.fleet(*asked, "--estimate", "--json").ended(0).json["earlier"] is None

    done = stage.fleet(*asked, "--name", "r", "--yes").ended(0)
    done.says("forecast: $", "  forecast  ", "it cost $", "; it took ")
    with Journal(stage.folder("r").journal) as journal:
        facts = [fact for _, fact in journal.facts()]
    [made] = [fact.forecast for fact in facts if isinstance(fact, f.PlanForecast)]
    assert made.subtasks == 2
    first = next(number for number, fact in enumerate(facts) if isinstance(fact, f.AttemptStarted))
    assert not any(isinstance(fact, f.PlanForecast) for fact in facts[first:])
    told = stage.status("r")["forecast"]
    assert made.dollars is not None
    assert told["dollars"]["median"] == made.dollars.median
    assert told["dollars"]["was"] == pytest.approx(stage.status("r")["cost_dollars"], abs=1e-6)
    assert told["minutes"]["within"] is True, "it takes seconds, where minutes are assumed"

    earlier = stage.fleet(*asked, "--estimate", "--json").ended(0).json["earlier"]
    assert (earlier["runs"], earlier["subtasks"]) == (1, 2)
    assert earlier["dollars"]["median"] < earlier["dollars"]["p90"]
    stage.fleet(*asked, "--estimate").ended(0).says("(as 1 earlier run here")


def test_what_calls_the_planner_is_not_an_estimate(stage: Stage, repository: Path) -> None:
    asked = ("run", "Write", "--plan-only", "--estimate", "--repo", str(repository))
    stage.fleet(*asked).ended(2).says("--plan-only calls the planner, --estimate calls nothing")
