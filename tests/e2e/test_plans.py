"""Plans as documents: written by `fleet plan`, edited, run by `fleet run --plan`, refused with all their problems."""

import json
from pathlib import Path
from typing import Any

import pytest

from fleet.core.plans.parameters import read_plan
from fleet.core.plans.plan import Plan
from fleet.core.plans.revision import PlanContext
from tests.e2e.conftest import Serve
from tests.e2e.stage import Stage, landed, script, subtask, untouched

DEPLOYMENT = Path(__file__).with_name("deployment.json")


@pytest.mark.parametrize("name", ["plan.toml", "plan.json"])
def test_a_plan_that_was_written_runs_as_it_was_written(
    name: str, stage: Stage, repository: Path, model: Serve
) -> None:
    url = model(script(subtask("one"), subtask("two", "one", risk="high"), subtask("three", "one")))
    path = stage.room / name
    with untouched(repository):
        asked = stage.fleet("plan", "Write", "-o", str(path), "--base-url", url, at=repository).ended(0)
        asked.says("Plan: Write", "two", "after one", "check: grep -qx two two.txt", f"fleet run --plan {path}")
        assert stage.runs == []
        if name == "plan.json":
            edited = json.loads(path.read_text(encoding="utf-8"))
            edited["subtasks"] = [one for one in edited["subtasks"] if one["id"] != "three"]
            path.write_text(json.dumps(edited), encoding="utf-8")
        asked_for = ("run", "--plan", str(path), "--name", "r", "--base-url", url, "--repo", str(repository), "--yes")
        done = stage.fleet(*asked_for)
        done.ended(0).says("LANDED")
    wanted = ["one", "two"] if name == "plan.json" else ["one", "two", "three"]
    assert sorted(landed(repository, "r")) == sorted(wanted)
    assert stage.status("r")["tokens"]["planner"]["calls"] == 0
    shown = stage.fleet("show", "two", "--run", "r", "--json").ended(0).json
    assert shown["subtask"]["risk"] == "high"


def test_a_plan_for_scripts_is_the_document_itself(stage: Stage, repository: Path, model: Serve) -> None:
    url = model(script(subtask("one")))
    done = stage.fleet("plan", "-", "--json", "--base-url", url, at=repository, given="Write one").ended(0)
    plan = read_plan(done.json, PlanContext(workers=frozenset({"coder"})))
    assert isinstance(plan, Plan)
    assert (plan.goal, plan.version, plan.ids) == ("Write one", 1, ("one",))
    assert stage.runs == []


def test_a_plan_waits_for_approval_where_that_is_wanted(stage: Stage, repository: Path, model: Serve) -> None:
    url = model(script(subtask("one")))
    asked = ("run", "Write", "--name", "r", "--base-url", url, "--repo", str(repository))
    with stage.with_(FLEET_RUN_REVIEW="true").going(*asked) as going:
        stage.wait("r", lambda state: state.plan.subtasks, going)
        assert stage.status("r")["state"] == "awaiting approval"
        stage.fleet("approve", "r").ended(0).says("plan version 1 approved")
        going.done().ended(0).says("plan version 1 approved by", "LANDED")


def test_the_deployment_plan_says_what_the_configuration_lacks_for_it(stage: Stage, repository: Path) -> None:
    """It loads, but it runs only where its workers and its named check are configured."""
    done = stage.fleet("run", "--plan", str(DEPLOYMENT), "--base-url", "http://127.0.0.1:9", at=repository).ended(2)
    done.says("deployment.json is not a valid plan", "subtasks[0].worker", "test-runner", "all_tests_pass")
    assert stage.runs == []


def test_the_deployment_plan_runs_once_its_workers_and_its_check_are_configured(
    stage: Stage, repository: Path, model: Serve
) -> None:
    configured = stage.room / "fleet.toml"
    names = ("test-runner", "db-manager", "k8s-deployer")
    workers = "".join(f'[workers.{name}]\nkind = "coder"\n' for name in names)
    configured.write_text(f'{workers}[checks.named]\nall_tests_pass = "true"\n', encoding="utf-8")
    steps = {f"step-{n}": {"attempts": [{"do": "solve", "files": {f"{n}.txt": "done\n"}}]} for n in (1, 2, 3)}
    url = model({"workers": steps})
    asked = ("run", "--plan", str(DEPLOYMENT), "--name", "r", "--base-url", url, "--config", str(configured))
    stage.fleet(*asked, at=repository).ended(0).says("LANDED")
    assert landed(repository, "r") == ["step-1", "step-2", "step-3"]


BROKEN: dict[str, Any] = {
    "goal": "Write",
    "owner": "me",
    "subtasks": [
        subtask("a", "c"),
        subtask("b", "a", "nowhere"),
        subtask("c", "b"),
        subtask("d"),
        {**subtask("d"), "acceptance": []},
        subtask("e", touches=["/etc/passwd", "../up"]),
        subtask("f", goal=" "),
        subtask("g", worker="codre"),
        {**subtask("h"), "urgency": "high"},
    ],
}


def test_every_problem_of_a_plan_is_listed_with_its_path(stage: Stage, repository: Path) -> None:
    path = stage.room / "plan.json"
    path.write_text(json.dumps(BROKEN), encoding="utf-8")
    with untouched(repository):
        done = stage.fleet("run", "--plan", str(path), "--base-url", "http://127.0.0.1:9", at=repository).ended(2)
    done.says(
        f"{path} is not a valid plan",
        "owner: is not a field here",
        "nowhere",
        "subtasks: depend on each other in a cycle: a → c → b → a",
        "subtasks: 2 subtasks have the id 'd'",
        "subtasks[4].acceptance",
        "subtasks[5].touches[0]",
        "subtasks[5].touches[1]",
        "subtasks[6].goal",
        "subtasks[7].worker: unknown worker 'codre'; did you mean 'coder'?",
        "subtasks[8].urgency: is not a field here",
    )
    assert stage.runs == []


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("plan.json", "{", "plan.json:1: invalid JSON"),
        ("plan.json", "[]", "expected a table, got list"),
        ("plan.toml", "goal = ", "plan.toml:1"),
        ("plan.toml", 'goal = "x"', "subtasks: is empty"),
        ("plan.json", '{"subtasks": [], "steps": []}', "Keep one of them"),
        ("plan.json", '{"subtasks": 7}', "is not a list"),
        ("plan.json", "[" * 100_000, "invalid JSON"),
    ],
)
def test_what_is_no_plan_is_refused(name: str, text: str, says: str, stage: Stage, repository: Path) -> None:
    (stage.room / name).write_text(text, encoding="utf-8")
    asked = ("run", "--plan", str(stage.room / name), "--base-url", "http://127.0.0.1:9")
    stage.fleet(*asked, at=repository).ended(2).says(says)
    assert stage.runs == []


def test_a_plan_that_cannot_be_read_is_refused(stage: Stage, repository: Path) -> None:
    for path, says in ((stage.room / "gone.json", "gone.json"), (stage.room, "not a regular file")):
        stage.fleet("run", "--plan", str(path), at=repository).ended(2).says(says)
    (stage.room / "binary.json").write_bytes(b"\xff\xfe\x00")
    stage.fleet("run", "--plan", str(stage.room / "binary.json"), at=repository).ended(2).says("UTF-8")
    assert stage.runs == []


def test_where_a_plan_is_to_be_written_is_looked_at_before_the_planner_is_paid(stage: Stage, repository: Path) -> None:
    (stage.room / "x.toml").mkdir()
    for output, says in (
        ("gone/plan.toml", "gone"),
        (str(stage.room / "x.toml"), "is a directory"),
        ("plan.yaml", ".json or .toml"),
    ):
        done = stage.fleet("plan", "Write", "-o", output, "--base-url", "http://127.0.0.1:9", at=repository).ended(2)
        done.says(says)
        assert "calling the planner" not in done.output
