"""The screen that opens on a terminal. A run does not depend on it."""

import os
import signal
import sys
from pathlib import Path

import anyio
import pytest

from fleet.app.input_files import dump_plan
from fleet.cli.terminal_data import FolderLibrary, read_only
from fleet.core.base.ids import Sha, SubtaskId
from fleet.core.plans.plan import Plan
from fleet.runs.journal import Journal
from tests.dashboards.hostile import CLIPBOARD
from tests.e2e.conftest import Serve
from tests.e2e.stage import Done, Stage, landed, script, solve, subtask, wait_for
from tests.e2e.terminal import at_a_terminal
from tests.fleet.core.pretend import started, subtask_of

STARTED = 2  # attempts


@pytest.fixture
def order(stage: Stage, repository: Path, model: Serve) -> tuple[str, ...]:
    """A run that is long enough to leave its screen."""
    slow = script(
        subtask("one"),
        subtask("two"),
        subtask("three", "one"),
        pace={"think_s": 0.3},
        workers={"two": [solve("two", turns=2)]},
    )
    url = model(slow)
    return ("run", "Write", "--name", stage.run_name, "--base-url", url, "--repo", str(repository))


def everything_landed(stage: Stage, repository: Path) -> None:
    stage.wait(stage.run_name, lambda state: state.ending == "landed")
    assert sorted(landed(repository, stage.run_name)) == ["one", "three", "two"]
    wait_for(lambda: not stage.folder(stage.run_name).alive)
    stage.nothing_runs(stage.run_name)


def test_a_plan_is_approved_on_the_screen_and_leaving_it_does_not_affect_the_run(
    stage: Stage, repository: Path, order: tuple[str, ...]
) -> None:
    with at_a_terminal(stage, *order) as terminal:
        terminal.shows("press A to approve")
        terminal.types("A")
        terminal.shows("Approve plan version")
        terminal.types("y")
        stage.wait(stage.run_name, lambda state: state.attempts >= STARTED)
        terminal.types("q")
        terminal.ended(0)
        assert f"fleet watch {stage.run_name}" in terminal.text
    everything_landed(stage, repository)


@pytest.mark.thorough
def test_a_plan_is_changed_by_a_file_and_then_approved(stage: Stage, order: tuple[str, ...]) -> None:
    """Without a screen, verbs do the same; an invalid plan changes nothing."""
    stage = stage.with_(FLEET_RUN_REVIEW="true")
    stage.fleet(*order, "--detach").ended(0)
    plan = stage.wait(stage.run_name, lambda state: state.plan.subtasks).plan
    path = stage.room / "plan.json"

    def approved(changed: Plan) -> Done:
        path.write_text(dump_plan(changed, toml=False))
        return stage.fleet("approve", stage.run_name, "--plan", str(path))

    one, two, three = plan.subtasks
    approved(plan.model_copy(update={"subtasks": (two, three)})).ended(2).says("one")
    approved(plan.model_copy(update={"subtasks": (one, three)})).ended(0)
    state = stage.wait(stage.run_name, lambda state: state.ending)
    assert {id_: subtask.landed is not None for id_, subtask in state.subtasks.items()} == {
        "one": True,
        "two": False,
        "three": True,
    }
    assert (state.ending, [version.plan.version for version in state.versions]) == ("landed", [1, 2])


@pytest.mark.thorough
def test_an_editor_is_opened_on_the_plan(stage: Stage, order: tuple[str, ...]) -> None:
    editor = f'{sys.executable} -c "import sys, pathlib as p; f = p.Path(sys.argv[1]); '
    editor += "f.write_text(f.read_text().replace('Write one', 'Write the first'))\""
    stage = stage.with_(FLEET_RUN_REVIEW="true", EDITOR=editor)
    stage.fleet(*order, "--detach").ended(0)
    stage.wait(stage.run_name, lambda state: state.plan.subtasks)
    stage.with_(EDITOR="false").fleet("approve", stage.run_name, "--edit").ended(2).says("the plan is unchanged")
    stage.fleet("approve", stage.run_name, "--edit").ended(0).says("version 2 approved")
    state = stage.wait(stage.run_name, lambda state: state.ending)
    assert state.spec(SubtaskId("one")).title == "Write the first"


@pytest.mark.thorough
def test_closing_the_terminal_does_not_end_the_run(stage: Stage, repository: Path, order: tuple[str, ...]) -> None:
    with at_a_terminal(stage, *order, "--yes") as terminal:
        stage.wait(stage.run_name, lambda state: state.attempts >= STARTED)
        terminal.close()
    everything_landed(stage, repository)


@pytest.mark.thorough
def test_the_screen_shows_how_a_run_ended(stage: Stage, order: tuple[str, ...]) -> None:
    with at_a_terminal(stage, *order, "--yes") as terminal:
        terminal.shows("fleet merge")
        terminal.types("q")
        terminal.ended(0)
        assert "LANDED" in terminal.text


def test_a_detached_run_continues_alone_and_is_watched_as_text(
    stage: Stage, repository: Path, order: tuple[str, ...]
) -> None:
    stage.fleet(*order, "--yes", "--detach").ended(0).says(f"fleet watch {stage.run_name}")
    stage.fleet("watch", stage.run_name, "--plain").ended(0).says("landed", "LANDED")
    everything_landed(stage, repository)


@pytest.mark.thorough
def test_a_killed_run_is_resumed_from_the_screen_with_the_same_service(
    stage: Stage, repository: Path, order: tuple[str, ...]
) -> None:
    """Only the journal knows `--base-url` then; `fleet resume` uses it as well."""
    with stage.going(*order, "--yes") as going:
        stage.wait(stage.run_name, lambda state: state.attempts >= STARTED, going)
        going.kill()
    with at_a_terminal(stage, "watch", stage.run_name) as terminal:
        terminal.shows("press R to resume")
        terminal.types("R")
        stage.wait(stage.run_name, lambda state: state.commits > 0)
        holder = stage.folder(stage.run_name).holder
        assert holder is not None
        os.kill(holder.pid, signal.SIGKILL)
        wait_for(lambda: not stage.folder(stage.run_name).alive)
        stage.fleet("resume", stage.run_name, "--plain").ended(0).says("LANDED")
        terminal.types("q")
        terminal.ended(0)
    everything_landed(stage, repository)


@pytest.mark.thorough
def test_an_attempts_commit_can_be_inspected_in_a_copy(stage: Stage, order: tuple[str, ...], tmp_path: Path) -> None:
    """Through the feed of the screen; a name from a journal can't reach files outside the run's folder."""
    stage.fleet(*order, "--yes").ended(0)
    folder = stage.folder(stage.run_name)
    with FolderLibrary(stage.state, read_only) as library:
        feed = library.open(stage.run_name)  # its files can be read when it is closed
    attempt = subtask_of(folder.state(), "one").attempts[-1]
    assert attempt.commit is not None
    commit, copy = attempt.commit, tmp_path / "copy"
    copy.mkdir()
    assert anyio.run(feed.copy, commit, copy) is None
    assert (copy / "one.txt").read_text() == "one\n"
    assert not (copy / ".git").exists()
    assert "+one" in (anyio.run(feed.diff, attempt.base, commit) or "")
    assert "no longer in the store" in (anyio.run(feed.copy, Sha("0" * 40), copy) or "")
    assert feed.transcript("one", 1).is_file()
    assert not feed.transcript("../../x", 1).exists()
    assert feed.log(attempt.checks[0].log).is_file()
    assert not feed.log("../journal.db").is_file()


def test_a_run_that_can_not_start_is_kept_with_the_reason(stage: Stage) -> None:
    folder = stage.folder("lost")
    with Journal.create(folder.journal) as journal:
        journal.append([started().model_copy(update={"run": "lost", "repository": str(stage.room / "gone")})])
    stage.fleet("resume", "lost", "--detach", "--base-url", "http://127.0.0.1:9").ended(3).says("gone")
    assert stage.status("lost")["state"] == "refused"
    stage.fleet("show", "lost").ended(0).says("gone")


def test_nothing_a_model_writes_acts_on_the_terminal(stage: Stage, repository: Path, model: Serve) -> None:
    """Titles with escapes, control characters and markup: on the screen they are text."""
    bad = f"{CLIPBOARD}\x1b]0;owned\x07[@click=app.exit]x[/nope]"
    url = model(script(subtask("one", title=f"Write one {bad}")))
    order = ("run", "Write", "--name", stage.run_name, "--base-url", url, "--repo", str(repository), "--yes")
    with at_a_terminal(stage, *order) as terminal:
        terminal.shows("fleet merge")
        terminal.types("3")
        terminal.types("6")
        terminal.shows("x[/nope]")
        terminal.types("q")
        terminal.ended(0)
        assert "]52;" not in terminal.text.replace("�]52;", "")
        assert "]0;owned" not in terminal.text.replace("�]0;owned", "")
