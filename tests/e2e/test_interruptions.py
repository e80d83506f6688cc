"""Kills, signals and requests from other processes: whatever comes between, each subtask lands exactly once."""

import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from fleet.core.state.state import RunState
from tests.e2e.conftest import Serve
from tests.e2e.stage import Json, Stage, landed, marked, program, script, solve, subtask, untouched, wait_for
from tests.worktrees.conftest import git
from worktrees.base.process import descendants

NAMES = ("one", "two", "three", "four")
SLOW = script(
    subtask("one"),
    subtask("two"),
    subtask("three", "one"),
    subtask("four", "three"),
    pace={"think_s": 0.15},
    workers={"two": [solve("two", turns=2)]},
)
"""Two workers at once, then one after the other: there is always something before and something after a moment."""


def begin(stage: Stage, repository: Path, url: str) -> tuple[str, ...]:
    return ("run", "Write", "--name", stage.run_name, "--base-url", url, "--repo", str(repository), "--yes")


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def everything_landed_once(stage: Stage, repository: Path) -> None:
    assert sorted(landed(repository, stage.run_name)) == sorted(NAMES)
    assert git(repository, "rev-list", "--merges", f"main..fleet/{stage.run_name}") == ""
    state = stage.folder(stage.run_name).state()
    tip = git(repository, "rev-parse", f"fleet/{stage.run_name}")
    assert (state.ending, state.commits, state.tip) == ("landed", len(NAMES), tip)
    stage.fleet("audit", stage.run_name).ended(0).says(f"audit passed: {len(NAMES)} commits")
    stage.nothing_runs(stage.run_name)


def attempts(stage: Stage) -> dict[str, int]:
    state = stage.folder(stage.run_name).state()
    return {id_: len(subtask_.attempts) for id_, subtask_ in state.subtasks.items()}


MOMENTS: dict[str, Callable[[RunState], object]] = {
    "the planner is asked": lambda state: state.planning.open is not None,
    "workers run": lambda state: len(state.running()) > 1,
    "the first has landed": lambda state: state.commits > 0,
}


@pytest.mark.parametrize(
    "moment",
    ["workers run", *(pytest.param(each, marks=pytest.mark.thorough) for each in MOMENTS if each != "workers run")],
)
def test_a_killed_run_continues_where_it_was(moment: str, stage: Stage, repository: Path, model: Serve) -> None:
    """No attempt is used up by it, and nothing lands twice."""
    url = model(SLOW)
    with untouched(repository):
        with stage.going(*begin(stage, repository, url)) as going:
            stage.wait(stage.run_name, MOMENTS[moment], going)
            going.kill()
        stage.fleet("resume", stage.run_name, "--base-url", url).ended(0).says("resumed for the first time", "LANDED")
    everything_landed_once(stage, repository)
    assert attempts(stage) == dict.fromkeys(NAMES, 1)


@pytest.mark.thorough
def test_a_run_that_is_killed_twice_still_gets_there(stage: Stage, repository: Path, model: Serve) -> None:
    url = model(SLOW)
    with stage.going(*begin(stage, repository, url)) as going:
        stage.wait(stage.run_name, lambda state: state.running(), going)
        going.kill()
    assert stage.status(stage.run_name)["state"] == "interrupted"
    with stage.going("resume", stage.run_name, "--base-url", url) as again:
        stage.wait(stage.run_name, lambda state: state.commits > 1, again)
        again.kill()
    stage.fleet("resume", stage.run_name, "--base-url", url).ended(0).says("resumed for the second time", "LANDED")
    everything_landed_once(stage, repository)
    assert attempts(stage) == dict.fromkeys(NAMES, 1)


def test_what_a_killed_run_was_running_dies_with_it(stage: Stage, repository: Path, model: Serve) -> None:
    endless = {"do": "shell", "commands": ["sleep 300 & sleep 300"]}
    url = model(script(subtask("one"), workers={"one": [endless]}))
    with stage.going(*begin(stage, repository, url)) as going:
        wait_for(lambda: [pid for pid in marked(stage.run_name) if program(pid) == "sleep"], going)
        going.kill()
    wait_for(lambda: not marked(stage.run_name))


def test_ctrl_c_lets_workers_finish_and_a_resumed_run_continues(stage: Stage, repository: Path, model: Serve) -> None:
    url = model(SLOW)
    with untouched(repository):
        with stage.going(*begin(stage, repository, url)) as going:
            stage.wait(stage.run_name, lambda state: len(state.running()) > 1, going)
            going.signal(signal.SIGINT)
            going.done().ended(130).says("draining: running agents finish", "stopped (drained)", "INTERRUPTED")
        assert sorted(landed(repository, stage.run_name)) == ["one", "two"]
        stage.nothing_runs(stage.run_name)
        stage.fleet("resume", stage.run_name, "--base-url", url).ended(0).says("LANDED")
    everything_landed_once(stage, repository)
    assert attempts(stage) == dict.fromkeys(NAMES, 1)


def test_ctrl_c_twice_stops_at_once_and_a_resumed_run_continues(stage: Stage, repository: Path, model: Serve) -> None:
    played = json.loads(json.dumps(SLOW))
    played["workers"]["two"]["attempts"] = [{"do": "hang", "seconds": 600, "then": solve("two")}]
    url = model(played)
    with untouched(repository):
        with stage.going(*begin(stage, repository, url)) as going:
            stage.wait(stage.run_name, lambda state: state.commits, going)
            going.signal(signal.SIGINT)
            stage.wait(stage.run_name, lambda state: state.draining, going)
            going.signal(signal.SIGINT)
            going.done().ended(130).says("draining", "stopped", f"fleet resume {stage.run_name}")
        stage.nothing_runs(stage.run_name)
        assert stage.status(stage.run_name)["agents"]["running"] == 0
        stage.fleet("resume", stage.run_name, "--base-url", url).ended(0).says("LANDED")
    everything_landed_once(stage, repository)
    assert attempts(stage) == dict.fromkeys(NAMES, 1)


@pytest.mark.thorough
def test_ctrl_c_twice_ends_it_although_every_helper_stands_still(stage: Stage, repository: Path, model: Serve) -> None:
    """As a kill would: its folders are left to the resumed run. A process between fork and exec is no helper yet."""
    url = model(SLOW)
    with untouched(repository):
        with stage.going(*begin(stage, repository, url)) as going:
            stage.wait(stage.run_name, lambda state: len(state.running()) > 1, going)
            own = command_line(going.process.pid)
            helpers = [pid for pid in descendants(of=going.process.pid) if command_line(pid) != own]
            for helper in helpers:
                with suppress(ProcessLookupError):
                    os.kill(helper, signal.SIGSTOP)
            going.signal(signal.SIGINT)
            stage.wait(stage.run_name, lambda state: state.draining, going)
            going.signal(signal.SIGINT)
            going.done().ended(130).says("stopped", f"fleet resume {stage.run_name}")
        wait_for(lambda: not any(Path(f"/proc/{helper}").exists() for helper in helpers))
        stage.nothing_is_alive(stage.run_name)
        stage.fleet("resume", stage.run_name, "--base-url", url).ended(0).says("LANDED")
    everything_landed_once(stage, repository)


def test_a_run_has_one_engine(stage: Stage, repository: Path, model: Serve) -> None:
    """The second is refused with the process that holds the run."""
    url = model({**SLOW, "pace": {"think_s": 0.6}})  # two commands have to begin before it ends
    with stage.going(*begin(stage, repository, url)) as going:
        stage.wait(stage.run_name, lambda state: state.running(), going)
        stage.fleet("resume", stage.run_name, "--base-url", url).ended(2).says(
            f"{stage.run_name} is already running in process {going.process.pid} on", f"fleet cancel {stage.run_name}"
        )
        stage.fleet("pause", stage.run_name).ended(0)  # so that it cannot end while the others try
        stage.fleet(*begin(stage, repository, url)).ended(2).says("exists", f"fleet resume {stage.run_name}")
        stage.fleet("clean", "--apply", "--runs").ended(0)
        stage.fleet("resume", stage.run_name, "--workers", "2").ended(2).says(f"`fleet limits {stage.run_name}`")
        stage.fleet("resume", stage.run_name).ended(0)
        going.done().ended(0)
    everything_landed_once(stage, repository)


def test_a_run_is_paused_and_continues_on_request(stage: Stage, repository: Path, model: Serve) -> None:
    url = model(SLOW)
    with stage.going(*begin(stage, repository, url)) as going:
        stage.wait(stage.run_name, lambda state: state.running(), going)
        stage.fleet("pause", stage.run_name).ended(0).says("no new agents start")
        state = stage.wait(stage.run_name, lambda state: state.paused and not list(state.underway()), going)
        assert 0 < state.commits < len(NAMES)
        assert stage.status(stage.run_name)["state"] == "paused"
        stage.fleet("limits", stage.run_name, "--workers", "0").ended(2).says("workers must be between 1 and 1000")
        stage.fleet("limits", stage.run_name, "--workers", "3", "--until", "2999-01-01").ended(0).says(
            "workers", "left"
        )
        stage.fleet("resume", stage.run_name).ended(0).says("continues")
        going.done().ended(0).says("paused by", "unpaused by", "limits changed by", "workers 3, minutes")
    everything_landed_once(stage, repository)
    assert stage.status(stage.run_name)["agents"]["limit"] == 3


@pytest.mark.thorough
def test_a_run_rests_in_its_hours_and_continues_without_them(stage: Stage, repository: Path, model: Serve) -> None:
    now = datetime.now()  # noqa: DTZ005 - hours of the day are local
    hours = f"{now - timedelta(hours=2):%H:%M}-{now + timedelta(hours=2):%H:%M}"
    url = model(SLOW)
    with stage.going(*begin(stage, repository, url), "--not-between", hours) as going:
        stage.wait(stage.run_name, lambda state: state.rests and not list(state.underway()), going)
        assert stage.status(stage.run_name)["paused_by"] == "run.not_between"
        stage.fleet("status", stage.run_name).ended(0).says("paused     by run.not_between")
        going.signal(signal.SIGTERM)
        going.done().ended(130)
    stage.fleet("resume", stage.run_name, "--not-between", "").ended(0).says("unpaused by", "LANDED")
    everything_landed_once(stage, repository)


def test_a_cancelled_run_keeps_what_landed(stage: Stage, repository: Path, model: Serve) -> None:
    played: Json = json.loads(json.dumps(SLOW))
    played["workers"]["three"]["attempts"] = [{"do": "hang", "seconds": 600, "then": solve("three")}]
    with stage.going(*begin(stage, repository, model(played))) as going:
        stage.wait(stage.run_name, lambda state: state.commits == 2 and state.running(), going)
        stage.fleet("cancel", stage.run_name).ended(0).says("cancelled")
        going.done().ended(1).says("CANCELLED", "cancelled by")
    assert sorted(landed(repository, stage.run_name)) == ["one", "two"]
    stage.nothing_runs(stage.run_name)
    stage.fleet("cancel", stage.run_name).ended(2).says("has already ended (cancelled)")


@pytest.mark.thorough
def test_a_closed_terminal_drains_and_a_run_that_was_cancelled_without_an_engine_can_be_resumed(
    stage: Stage, repository: Path, model: Serve
) -> None:
    url = model(SLOW)
    with stage.going(*begin(stage, repository, url)) as going:
        stage.wait(stage.run_name, lambda state: state.running(), going)
        going.signal(signal.SIGHUP)
        going.done().ended(130).says("draining")
    assert 0 < len(landed(repository, stage.run_name)) < len(NAMES)
    stage.fleet("cancel", stage.run_name).ended(0).says("cancelled", "No engine is running. `fleet resume")
    stage.nothing_runs(stage.run_name)
    stage.fleet("resume", stage.run_name).ended(0)
    everything_landed_once(stage, repository)
