"""A whole run that has to narrow down: one subtask breaks the gate, and two write the same file."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Serve
from tests.e2e.stage import Done, Stage
from tests.worktrees.conftest import git, make_repository

FINE = "abcefgh"
GATE = "! grep -rq bomb --include=*.txt ."


def subtask(id_: str, file: str) -> dict[str, Any]:
    check = {"criterion": f"{id_} is there", "run": f"grep -q {id_} {file}"}
    return {"id": id_, "title": f"Write {id_}", "goal": f"Write {file}.", "acceptance": [check], "touches": [file]}


def written(file: str, *texts: str) -> dict[str, Any]:
    return {"attempts": [{"do": "solve", "turns": 1, "files": {file: text}} for text in texts]}


@pytest.fixture
def repository(stage: Stage) -> Path:
    """A repository, and beside it a plan and a configuration."""
    plan = {
        "plan_id": "p",
        "goal": "write them all",
        "version": 1,
        "subtasks": [
            *(subtask(f"mod-{id_}", f"{id_}.txt") for id_ in FINE),
            subtask("mod-d", "d.txt"),
            subtask("left", "same.txt"),
            subtask("right", "same.txt"),
        ],
    }
    (stage.room / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    (stage.room / "conf.toml").write_text(f"[checks]\ngate = '{GATE}'\n", encoding="utf-8")
    return make_repository(stage.room / "repo", {"README.md": "hello\n", "same.txt": "base\n"})


@pytest.fixture
def url(model: Serve) -> str:
    """The address of a model whose workers do what the plan asks for, two of them at the second attempt."""
    both = "left\nright\n"
    workers = {f"mod-{id_}": written(f"{id_}.txt", f"mod-{id_}\n") for id_ in FINE}
    workers |= {"left": written("same.txt", "left\n", both), "right": written("same.txt", "right\n", both)}
    workers["mod-d"] = written("d.txt", "mod-d bomb\n", "mod-d\n")
    pace = {"think_s": 0.02, "jitter": 0.5}
    planner = {"steps": [], "synthesis": "done"}
    return model({"label": "x", "seed": 1, "pace": pace, "planner": planner, "workers": workers})


def begin(stage: Stage, url: str, *more: str) -> Done:
    given = ("--plan", "plan.json", "--repo", "repo", "--config", "conf.toml", "--base-url", url, "--yes")
    return stage.fleet("run", *given, "--name", "one", *more)


def test_the_innocent_land_at_once_the_guilty_is_fixed_and_a_conflict_is_resolved(
    stage: Stage, repository: Path, url: str
) -> None:
    done = begin(stage, url).ended(0)
    assert "batches (0 red)" not in done.out
    assert git(repository, "rev-list", "--count", "--merges", "fleet/one") == "0"
    commits = git(repository, "rev-list", "main..fleet/one").split()
    assert len(commits) == 10
    assert [commit for commit in commits if "bomb" in git(repository, "grep", "-h", "", commit, ok=False)] == []
    assert git(repository, "show", "fleet/one:same.txt") == "left\nright"
    guilty = stage.fleet("show", "mod-d", "--run", "one", "--json").json
    assert [attempt["failure"] and attempt["failure"]["kind"] for attempt in guilty["attempts"]] == [
        "integration",
        None,
    ]
    assert [check["passed"] for check in guilty["attempts"][0]["checks"]] == [True, False]
    assert Path(guilty["attempts"][0]["checks"][1]["log"]).read_text().startswith(f"$ {GATE}\n")
    rates = stage.status("one")["incidents"]
    assert (rates["by_strategy"]["resolve"]["recovered"], rates["rate"]) == (1, 1.0)
    stage.fleet("audit", "one").ended(0).says("audit passed: 10 commits")


def test_a_red_base_is_refused_before_any_call_to_a_model_and_may_be_allowed(
    stage: Stage, repository: Path, url: str
) -> None:
    (repository / "old.txt").write_text("bomb\n", encoding="utf-8")
    git(repository, "add", "-A")
    git(repository, "commit", "--quiet", "-m", "a bomb")
    refused = begin(stage, url).ended(3)
    assert f"the gate is RED on the base: {GATE}" in refused.out
    assert "--allow-red-base" in refused.err
    assert "planner" not in refused.out
    assert " started: " not in refused.out
    assert [run["state"] for run in stage.fleet("runs", "--json", at=repository).ended(0).json] == ["refused"]
    stage.fleet("logs", "gate", "--run", "one").ended(0).says(f"$ {GATE}", "[exit code")
    begin(stage, url, "--allow-red-base", "--name", "two").ended(0)
    assert git(repository, "rev-list", "--count", "main..fleet/two") == "10"
