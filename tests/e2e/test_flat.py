"""Flat runs, plans that are only made, and the versions of a plan: through the command line."""

from pathlib import Path

from tests.e2e.conftest import Serve
from tests.e2e.stage import Stage, landed, script, subtask

BOTH = {"do": "solve", "files": {"one.txt": "one\n", "two.txt": "two\n"}}


def test_a_flat_run_is_one_subtask_whatever_the_planner_makes_of_it(
    stage: Stage, repository: Path, model: Serve
) -> None:
    url = model(script(subtask("one"), subtask("two", "one"), workers={"one": [BOTH]}))
    run = ("run", "Write both", "--name", "flat", "--base-url", url)
    done = stage.fleet(*run, "--flat", "--plan-only", at=repository).ended(0)
    done.says("1 subtask", "grep -qx two two.txt")
    assert "flat" not in stage.runs
    stage.fleet(*run, "--flat", "--yes", at=repository).ended(0).says("flat: one worker, no decomposition")
    assert landed(repository, "flat") == ["one"]
    assert stage.status("flat")["flat"] is True
    shown = stage.fleet("show", "--versions", "0..1", "--run", "flat").ended(0)
    shown.says("version 1, by planner: This is what is to be done. (merged into one subtask", "+ one: Write both")
    assert stage.fleet("show", "--versions", "0..1", "--run", "flat", "--json").json[0]["changes"] == [
        "+ one: Write both"
    ]


def test_a_wrong_range_of_versions_is_answered_with_an_example(stage: Stage, repository: Path, model: Serve) -> None:
    url = model(script(subtask("one")))
    stage.fleet("run", "Write one", "--name", "it", "--base-url", url, "--yes", at=repository).ended(0)
    stage.fleet("show", "--versions", "3", "--run", "it").ended(2).says("such as 1..3")
    stage.fleet("show", "--versions", "7..9", "--run", "it").ended(2).says("its latest version is 1")
    stage.fleet("run", "x", "--plan", "p.toml", "--plan-only", at=repository).ended(2)
