"""A whole run that has to narrow down: one subtask breaks the gate, and two write the same file."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.worktrees.conftest import git, make_repository

FINE = "abcefgh"
GATE = "! grep -rq bomb --include=*.txt ."
LIMIT_S = 120


def fleet(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fleet", *arguments]
    return subprocess.run(
        command, env=environment(home), cwd=home, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def environment(home: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    root = str(Path(__file__).parents[2])
    return {**kept, "PYTHONPATH": root, "HOME": str(home), "FLEET_STATE_DIR": str(home / "state"), "LANG": "C.UTF-8"}


def subtask(id_: str, file: str) -> dict[str, Any]:
    check = {"criterion": f"{id_} is there", "run": f"grep -q {id_} {file}"}
    return {"id": id_, "title": f"Write {id_}", "goal": f"Write {file}.", "acceptance": [check], "touches": [file]}


def written(file: str, *texts: str) -> dict[str, Any]:
    return {"attempts": [{"do": "solve", "turns": 1, "files": {file: text}} for text in texts]}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A repository, a plan for it, and a script for the model."""
    make_repository(tmp_path / "repo", {"README.md": "hello\n", "same.txt": "base\n"})
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
    both = "left\nright\n"
    workers = {f"mod-{id_}": written(f"{id_}.txt", f"mod-{id_}\n") for id_ in FINE}
    workers |= {"left": written("same.txt", "left\n", both), "right": written("same.txt", "right\n", both)}
    workers["mod-d"] = written("d.txt", "mod-d bomb\n", "mod-d\n")
    pace = {"think_s": 0.02, "jitter": 0.5}
    script = {"label": "x", "seed": 1, "pace": pace, "planner": {"steps": [], "synthesis": "done"}, "workers": workers}
    (tmp_path / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    (tmp_path / "script.json").write_text(json.dumps(script), encoding="utf-8")
    (tmp_path / "conf.toml").write_text(f"[checks]\ngate = '{GATE}'\n", encoding="utf-8")
    return tmp_path


@pytest.fixture
def model(home: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "fleet", "simulate", str(home / "script.json"), "--port", "0"]
    with subprocess.Popen(command, env=environment(home), cwd=home, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield next(line for line in process.stdout if "http://" in line).split()[-1]
        finally:
            process.terminate()


def begin(home: Path, model: str, *more: str) -> subprocess.CompletedProcess[str]:
    given = ("--plan", "plan.json", "--repo", "repo", "--config", "conf.toml", "--base-url", model, "--yes")
    return fleet(home, "run", *given, "--name", "one", *more)


def test_the_innocent_land_at_once_the_guilty_is_mended_and_a_conflict_is_resolved(home: Path, model: str) -> None:
    done = begin(home, model)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "batches (0 red)" not in done.stdout
    repo = home / "repo"
    assert git(repo, "rev-list", "--count", "--merges", "fleet/one") == "0"
    commits = git(repo, "rev-list", "main..fleet/one").split()
    assert len(commits) == 10
    assert [commit for commit in commits if "bomb" in git(repo, "grep", "-h", "", commit, ok=False)] == []
    assert git(repo, "show", "fleet/one:same.txt") == "left\nright"
    guilty = json.loads(fleet(home, "show", "mod-d", "--run", "one", "--json").stdout)
    assert [attempt["failure"] and attempt["failure"]["kind"] for attempt in guilty["attempts"]] == [
        "integration",
        None,
    ]
    assert [check["passed"] for check in guilty["attempts"][0]["checks"]] == [True, False]
    assert Path(guilty["attempts"][0]["checks"][1]["log"]).read_text().startswith(f"$ {GATE}\n")
    status = json.loads(fleet(home, "status", "one", "--json").stdout)
    rates = status["incidents"]
    assert (rates["by_strategy"]["resolve"]["recovered"], rates["rate"]) == (1, 1.0)
    audit = fleet(home, "audit", "one")
    assert audit.returncode == 0, audit.stdout
    assert "the audit holds: 10 commits" in audit.stdout


def test_a_red_base_is_refused_before_any_call_to_a_model_and_may_be_allowed(home: Path, model: str) -> None:
    repo = home / "repo"
    (repo / "old.txt").write_text("bomb\n", encoding="utf-8")
    git(repo, "add", "-A")
    git(repo, "commit", "--quiet", "-m", "a bomb")
    refused = begin(home, model)
    assert refused.returncode == 3, refused.stdout + refused.stderr
    assert f"the gate is RED on the base: {GATE}" in refused.stdout
    assert "--allow-red-base" in refused.stderr
    assert "planner" not in refused.stdout
    assert " started" not in refused.stdout
    allowed = begin(home, model, "--allow-red-base", "--name", "two")
    assert allowed.returncode == 0, allowed.stdout + allowed.stderr
    assert git(repo, "rev-list", "--count", "main..fleet/two") == "10"
