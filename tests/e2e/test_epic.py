"""One epic from its text to the branch it landed on, through the command line alone."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.conftest import Serve
from tests.e2e.stage import PATIENCE_S, Json, Stage, landed, script, solve, subtask, untouched
from tests.worktrees.conftest import git, make_repository

NAMES = ("left", "right", "total")
STUB = "def {name}():\n    raise NotImplementedError\n"
TEST = """import unittest

from sums.{name} import {name}


class Test(unittest.TestCase):
    def test_it(self):
        self.assertEqual({name}(), {value})
"""
WRITTEN = {
    "left": "def left():\n    return 3\n",
    "right": "def right():\n    return 4\n",
    "total": "from sums import left, right\n\n\ndef total():\n    return left.left() + right.right()\n",
}
VALUES = {"left": 3, "right": 4, "total": 7}


def package() -> dict[str, str]:
    """A Python package that is all stubs, with a specification for each of them."""
    files = {"sums/__init__.py": "", "tests/__init__.py": "", "README.md": "sums\n"}
    for name in NAMES:
        files[f"sums/{name}.py"] = STUB.format(name=name)
        files[f"tests/test_{name}.py"] = TEST.format(name=name, value=VALUES[name])
    return files


def planned(name: str, *needs: str) -> Json:
    check = f"python3 -m unittest tests.test_{name}"
    return subtask(name, *needs, run=check, touches=[f"sums/{name}.py"], goal=f"Write sums/{name}.py.")


def written(name: str) -> Json:
    return {"do": "solve", "files": {f"sums/{name}.py": WRITTEN[name]}, "says": {"summary": f"{name} is written."}}


PLAYED = script(
    planned("left"),
    planned("right"),
    planned("total", "left", "right"),
    workers={name: [written(name)] for name in NAMES},
)


@contextmanager
def simulated(stage: Stage, played: Json) -> Iterator[str]:
    """`fleet simulate` as a process of its own."""
    path = stage.room / "script.json"
    path.write_text(json.dumps(played), encoding="utf-8")
    command = [sys.executable, "-m", "fleet", "simulate", str(path), "--port", "0"]
    with subprocess.Popen(command, env=stage.environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().rsplit(" ", 1)[1].strip()
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_S) == 0


@pytest.fixture
def lived_in(tmp_path: Path) -> Path:
    """A repository with everything in it that is not the fleet's business."""
    at = make_repository(tmp_path / "a library", package())
    git(at, "branch", "feature")
    git(at, "tag", "v1")
    git(at, "config", "user.name", "Ada")
    (at / "README.md").write_text("stashed\n", encoding="utf-8")
    git(at, "stash")
    for hook in ("pre-commit", "post-commit", "pre-receive", "update", "post-receive", "reference-transaction"):
        (at / ".git" / "hooks" / hook).write_text(f"#!/bin/sh\ntouch '{tmp_path}/hook-ran'\n", encoding="utf-8")
        (at / ".git" / "hooks" / hook).chmod(0o755)
    (at / "README.md").write_text("staged\n", encoding="utf-8")
    git(at, "-c", f"core.hooksPath={os.devnull}", "add", "README.md")
    (at / "notes.txt").write_text("not added\n", encoding="utf-8")
    (tmp_path / "hook-ran").unlink(missing_ok=True)
    return at


def test_an_epic_lands_on_a_branch_and_nothing_else_of_the_users_changes(stage: Stage, lived_in: Path) -> None:
    with simulated(stage, PLAYED) as url, untouched(lived_in):
        done = stage.fleet("run", "Write sums", "--name", "sums", "--base-url", url, "--yes", at=lived_in)
        done.ended(0).says(
            "note: starts from HEAD", "without the uncommitted changes in 2 files", "LANDED  sums  (simulated model)"
        )
        _every_verb_that_looks_can_read_it(stage, lived_in)
    assert not (stage.room / "hook-ran").exists()
    stage.nothing_runs("sums")

    order = landed(lived_in, "sums")
    assert (sorted(order), order[-1]) == (sorted(NAMES), "total")
    assert git(lived_in, "rev-list", "--merges", "main..fleet/sums") == ""
    assert git(lived_in, "for-each-ref", "--format=%(refname)", "refs/heads/fleet") == "refs/heads/fleet/sums"
    message = git(lived_in, "log", "-1", "--format=%B", "fleet/sums")
    for trailer in ("Fleet-Run: sums", "Fleet-Task: total", "Fleet-Attempt: 1", "Assisted-by: claude-haiku-5-5"):
        assert trailer in message.splitlines()
    changed = git(lived_in, "diff", "--name-only", "main", "fleet/sums").splitlines()
    assert changed == [f"sums/{name}.py" for name in NAMES]

    _the_result_can_be_taken(stage, lived_in)
    _what_is_left_can_be_removed(stage, lived_in)


def _every_verb_that_looks_can_read_it(stage: Stage, repository: Path) -> None:
    status = stage.status("sums")
    assert set(status["tokens"]) == {"planner", "worker"}
    for spent in status["tokens"].values():
        assert set(spent) == {"calls", "input", "output", "cache_read", "cache_write"}
        assert min(spent["calls"], spent["output"], spent["input"] + spent["cache_write"]) > 0
    assert status["cost_dollars"] > 0
    assert status["seconds"] > 0
    expected = {
        "run": "sums",
        "state": "landed",
        "goal": "Write sums",
        "plan_version": 1,
        "subtasks": {"merged": 3},
        "attempts": 3,
        "commits": 3,
        "incidents": {
            "opened": 0,
            "open": 0,
            "closed": 0,
            "recovered": 0,
            "unrecovered": 0,
            "rate": None,
            "by_class": {},
            "by_strategy": {},
        },
        "result_branch": "fleet/sums",
        "tip": git(repository, "rev-parse", "fleet/sums"),
    }
    assert {name: status[name] for name in expected} == expected
    assert status["agents"]["running"] == 0
    assert 1 <= status["agents"]["peak"] <= 2
    stage.fleet("status", at=repository).ended(0).says("sums  landed", "fleet/sums")

    (row,) = stage.fleet("runs", "--json").ended(0).json
    assert (row["run"], row["state"]) == ("sums", "landed")
    stage.fleet("runs").ended(0).says("RUN", "sums", "3 of 3")

    shown = stage.fleet("show", "total", "--json", at=repository).ended(0).json
    assert shown["status"] == "merged"
    assert shown["subtask"]["depends_on"] == ["left", "right"]
    assert [check["passed"] for check in shown["attempts"][0]["checks"]] == [True]
    stage.fleet("show", "total", "--run", "sums").ended(0).says("after   left, right", "landed as")

    turns = stage.fleet("logs", "left", "--json", "--run", "sums").ended(0).json
    assert turns
    stage.fleet("logs", "left", "--run", "sums").ended(0).says("sums/left.py")
    stage.fleet("logs", "planner", "--run", "sums").ended(0).says("submit_revision")
    stage.fleet("diff", "left", "--run", "sums").ended(0).says("+    return 3")


def _the_result_can_be_taken(stage: Stage, repository: Path) -> None:
    stage.fleet("merge", "sums", "--into", "main").ended(2).says("main is checked out", "uncommitted changes")
    stage.fleet("merge", "sums", "--into", "featrue").ended(2).says("did you mean 'feature'")
    stage.fleet("merge", "sums", "--into", "feature").ended(0).says("feature is now at")
    assert git(repository, "rev-parse", "feature") == git(repository, "rev-parse", "fleet/sums")
    stage.fleet("resume", "sums").ended(2).says("sums has landed", "fleet merge sums")


def _what_is_left_can_be_removed(stage: Stage, repository: Path) -> None:
    tip = git(repository, "rev-parse", "fleet/sums")
    stage.fleet("clean", "--runs").ended(0).says("sums: ", "would be deleted", "fleet clean --apply")
    assert stage.runs == ["sums"]
    stage.fleet("clean", "--apply", "--runs").ended(0).says("1 journal, ", "deleted")
    assert stage.runs == []
    assert git(next((stage.state / "stores").glob("*/fleet.git")), "for-each-ref") == ""
    assert git(repository, "rev-parse", "fleet/sums") == tip
    stage.fleet("clean", "--runs").ended(0).says("nothing to clean")


def test_two_runs_of_one_repository_go_on_at_once(stage: Stage, repository: Path, model: Serve) -> None:
    url = model(script(subtask("one"), subtask("two"), pace={"think_s": 0.2}))
    asked = ("run", "Write", "--repo", str(repository), "--base-url", url, "--yes", "--name")
    with untouched(repository), stage.going(*asked, "a") as first, stage.going(*asked, "b") as second:
        first.done().ended(0)
        second.done().ended(0)
    for run in ("a", "b"):
        assert sorted(landed(repository, run)) == ["one", "two"]
        stage.nothing_runs(run)


def test_a_run_that_is_not_named_gets_a_name_and_is_the_latest(stage: Stage, repository: Path, model: Serve) -> None:
    epic = repository / "epic.log"
    epic.write_text("# Write one file\n\nOnly one.\n", encoding="utf-8")
    url = model(script(subtask("one"), workers={"one": [solve("one", through="bash")]}))
    done = stage.fleet("run", str(epic), "--json", "--yes", "--base-url", url, at=repository).ended(0)
    assert done.json["state"] == "landed"
    (run,) = stage.runs
    assert run.startswith("write-one-file-only")
    assert stage.fleet("status", "--json", at=repository).json["run"] == run
    assert landed(repository, run) == ["one"]
