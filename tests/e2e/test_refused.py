"""A run that is refused is kept: what failed, with the lines that matter, until it is started again or cleaned."""

import json
from pathlib import Path

import pytest

from tests.e2e.stage import Stage, landed, subtask
from tests.worktrees.conftest import git

NOISE = "for n in $(seq 2000); do echo noise; done"
SETUP = f"echo 'npm error code EAI_AGAIN'; {NOISE}; exit 7"


@pytest.fixture
def order(stage: Stage, repository: Path) -> tuple[str, ...]:
    """A run of a command worker: no model is asked, and no key is needed."""
    (stage.room / "plan.json").write_text(json.dumps({"goal": "a", "subtasks": [subtask("a", worker="sh")]}))
    (stage.room / "conf.toml").write_text('[workers.sh]\nkind = "command"\ncommand = "sh -c \'echo a > a.txt\'"\n')
    files = ("--plan", str(stage.room / "plan.json"), "--config", str(stage.room / "conf.toml"))
    return ("run", *files, "--repo", str(repository), "--name", "one", "--yes")


def test_a_set_up_that_fails_is_shown_with_its_cause_and_kept(
    stage: Stage, repository: Path, order: tuple[str, ...]
) -> None:
    broken = stage.with_(FLEET_WORKTREES_SETUP=SETUP)
    refused = broken.fleet(*order).ended(3)
    refused.says(
        "REFUSED  one", "| npm error code EAI_AGAIN", "--setup-network", "fleet logs setup --run one", "no gate"
    )
    assert "the setup command failed with exit code 7" in refused.err
    stage.fleet("show", "one").ended(0).says("one  refused", "| npm error code EAI_AGAIN")
    shown = stage.fleet("show", "one", "--json").ended(0).json["base_check"]
    assert shown["setup"]["check"]["exit_code"] == 7
    assert shown["causes"] == ["npm error code EAI_AGAIN"]
    status = stage.status("one")
    assert (status["state"], status["causes"], status["gate"]) == ("refused", ["npm error code EAI_AGAIN"], "")
    log = stage.fleet("logs", "setup", "--run", "one", "--json").ended(0).json
    assert log["text"].count("noise") > 2000
    stage.fleet("logs", "gate", "--run", "one").ended(2).says("no gate log")
    resumed = broken.fleet("resume", "one", "--config", order[4]).ended(3)
    assert "REFUSED  one" in resumed.out
    stage.fleet(*order).ended(0).says("gate                       NONE")
    assert landed(repository, "one") == ["a"]


def test_a_script_reads_why_and_clean_removes_it(stage: Stage, order: tuple[str, ...]) -> None:
    refused = stage.with_(FLEET_CHECKS_GATE=f"no-such-program; {NOISE}; false").fleet(*order, "--json").ended(3)
    view = json.loads(refused.out)
    assert (view["state"], view["causes"]) == ("refused", ["bash: line 1: no-such-program: command not found"])
    stage.fleet("clean", "--apply", "--runs").ended(0)
    assert stage.runs == []
    [store] = (stage.state / "stores").iterdir()
    assert git(store / "fleet.git", "for-each-ref") == ""


@pytest.mark.parametrize("how", ["in the foreground", "in the background"])
def test_a_run_that_no_engine_could_work_on_is_kept_with_the_reason(
    stage: Stage, repository: Path, order: tuple[str, ...], how: str
) -> None:
    stage.state.mkdir()
    (stage.state / "stores").write_text("in the way")
    if how == "in the foreground":
        stage.fleet(*order).ended(3).says("REFUSED  one", "fleet resume one", "Not a directory")
    else:
        stage.fleet(*order, "--detach")
        stage.wait("one", lambda state: state.ended)
    status = stage.status("one")
    assert status["state"] == "refused"
    assert "Not a directory" in status["why"]
    stage.fleet("show", "one").ended(0).says("because", "Not a directory")
    (stage.state / "stores").unlink()
    stage.fleet("resume", "one", "--config", order[4]).ended(0)
    assert landed(repository, "one") == ["a"]
