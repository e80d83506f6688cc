"""Estimates as people see them: none without past runs; then the median and the range of landed subtasks."""

from pathlib import Path

from fleet.core.facts import facts as f
from fleet.runs.journal import Journal
from tests.e2e.conftest import Serve
from tests.e2e.stage import Stage, script, subtask

UNKNOWN = "too few past runs in this repository for an estimate"
PLAN = """
goal = "Write"

[[subtasks]]
id = "six"
title = "Write six"
goal = "Write six.txt."
estimate = { lines = 900 }
acceptance = [{ criterion = "it is there", run = "grep -qx six six.txt" }]
"""
NAMES = ("one", "two", "three", "four", "five")


def test_an_estimate_needs_five_landed_subtasks_of_this_repository(
    stage: Stage, repository: Path, model: Serve
) -> None:
    url = model(script(*map(subtask, NAMES)))
    asked = ("run", "Write", "--base-url", url, "--repo", str(repository))
    stage.fleet(*asked, "--estimate").ended(0).says(f"Estimate: {UNKNOWN}")
    assert stage.fleet(*asked, "--estimate", "--json").ended(0).json["estimates"] == []
    assert stage.runs == []

    stage.fleet(*asked, "--name", "r", "--yes").ended(0).says(f"estimate: {UNKNOWN}", "LANDED")
    with Journal(stage.folder("r").journal) as journal:
        assert not any(isinstance(fact, f.PlanForecast) for _, fact in journal.facts())
    told = stage.status("r")
    assert (told["estimates"], told["remaining"]) == ([], None), "nothing is to come"

    stage.fleet(*asked, "--estimate").ended(0).says(
        "medium subtasks of coder", "(median and range of 5 landed subtasks)"
    )
    [row] = stage.fleet(*asked, "--estimate", "--json").ended(0).json["estimates"]
    assert (row["worker"], row["size"], row["landed"]) == ("coder", "medium", 5)
    assert row["dollars"]["low"] <= row["dollars"]["median"] <= row["dollars"]["high"]
    assert row["seconds"]["high"] > 0

    plan = stage.room / "plan.toml"
    plan.write_text(PLAN)
    other = ("run", "--plan", str(plan), "--estimate", "--base-url", url, "--repo", str(repository))
    stage.fleet(*other).ended(0).says(f"Estimate: {UNKNOWN}")
    [row] = stage.fleet(*other, "--json").ended(0).json["estimates"]
    assert (row["size"], row["landed"], row["dollars"]) == ("large", 0, None)


def test_what_calls_the_planner_is_not_an_estimate(stage: Stage, repository: Path) -> None:
    asked = ("run", "Write", "--plan-only", "--estimate", "--repo", str(repository))
    stage.fleet(*asked).ended(2).says("--plan-only and --estimate can't be used together")
