"""Rehearsals of a generated history, through the command line: with a gate that was red for a while."""

from pathlib import Path

import pytest

from fleet.core.facts.facts import SetupRan
from fleet.runs.journal import Journal
from tests.e2e.stage import Stage
from tests.worktrees.conftest import fingerprint, git
from tests.worktrees.histories import BROKEN, GATE, HISTORY, Made, make_history, text

CHANGING = [made for made in HISTORY[1:] if made.put or made.remove]


@pytest.fixture
def past(tmp_path: Path) -> Path:
    return make_history(tmp_path / "past")


def test_a_rehearsal_ends_in_the_tree_of_history_and_says_what_it_found(stage: Stage, past: Path) -> None:
    before = fingerprint(past, without="")
    view = stage.fleet("rehearse", "--gate", GATE, "--tries", "2", "--json", at=past).ended(0).json
    assert fingerprint(past, without="") == before
    assert git(past, "rev-parse", "main") == view["head"]
    assert (view["tree_equal"], view["differing"]) == (True, [])
    assert (view["landed"], view["commits"]) == (len(CHANGING), len(CHANGING))
    assert [note["title"] for note in view["by_hand"]] == [made.message.decode() for made in CHANGING if made.by_hand]
    assert [note["title"] for note in view["red_in_history"]] == [HISTORY[at].message.decode() for at in BROKEN]
    assert (view["gate"]["tries"], view["gate"]["green"], view["gate"]["flaky"]) == (2, 2, False)
    assert {setting["key"] for setting in view["settings"]} == {"run.workers", "checks.gate_timeout_s"}
    assert view["attempts"] == len(CHANGING)


@pytest.mark.thorough
def test_a_rehearsal_that_was_killed_shows_all_of_its_result_once_it_is_resumed(stage: Stage, past: Path) -> None:
    gate = ("--gate", f"sleep 0.2; {GATE}", "--tries", "2")
    begin = ("rehearse", "--last", "6", *gate, "--name", stage.run_name)
    with stage.going(*begin, at=past) as going:
        stage.wait(stage.run_name, lambda state: state.commits > 0, going)
        going.kill()
    view = stage.fleet("resume", stage.run_name, "--json", at=past).ended(0).json
    assert (view["tree_equal"], view["landed"]) == (True, view["commits"])
    assert (view["gate"]["tries"], view["gate"]["green"]) == (2, 2), "the tries before the kill"
    assert view["processor_s"] is None
    assert view["engines"] > 1
    again = stage.fleet("resume", stage.run_name, "--json", at=past).ended(0).json
    assert (again["gate"], again["settings"], again["tip"]) == (view["gate"], view["settings"], view["tip"])
    stage.fleet("resume", stage.run_name, at=past).ended(0).says("REHEARSED", "Recommended settings")


@pytest.mark.thorough
def test_a_rehearsal_that_was_killed_before_it_began_tries_the_gate_when_it_is_resumed(
    stage: Stage, past: Path
) -> None:
    begin = ("rehearse", "--last", "2", "--gate", "sleep 0.5", "--tries", "20", "--name", stage.run_name)
    with stage.going(*begin, at=past) as going:
        stage.wait(stage.run_name, lambda state: state.epoch == 0, going)
        going.kill()
    stage.fleet("resume", stage.run_name, at=past).ended(0).says("REHEARSED", "3 of 3 times")


def test_a_rehearsal_is_kept_and_marked_wherever_it_is_shown(stage: Stage, past: Path) -> None:
    stage.fleet("rehearse", "--last", "3", "--gate", "", "--name", "dress", at=past).ended(0).says("REHEARSED", "none")
    stage.fleet("runs", at=past).ended(0).says("landed (rehearsal)")
    stage.fleet("status", "dress", at=past).ended(0).says("dress  landed  (rehearsal: no model)")
    assert stage.status("dress")["rehearsal"] is True
    stage.fleet("report", "dress", "-o", str(past.parent / "report.md")).ended(0)
    assert "REHEARSAL:" in (past.parent / "report.md").read_text(encoding="utf-8")
    assert git(past, "branch", "--list", "fleet/*") == ""


def test_a_branch_is_left_only_if_it_is_asked_for(stage: Stage, past: Path) -> None:
    stage.fleet("rehearse", "--last", "2", "--gate", "", "--name", "dress", "--branch", at=past).ended(0)
    assert git(past, "rev-parse", "fleet/dress^{tree}") == git(past, "rev-parse", "main^{tree}")


def test_what_was_measured_is_written_beside_what_a_person_has_set(stage: Stage, past: Path) -> None:
    (past / "fleet.toml").write_text("# ours\n[run]\nbudget_dollars = 3.0\n", encoding="utf-8")
    stage.fleet("rehearse", "--last", "2", "--gate", "true", "--tries", "1", "--write", at=past).ended(0)
    text = (past / "fleet.toml").read_text(encoding="utf-8")
    assert text.startswith("# ours\n[run]\n# ")
    shown = stage.fleet("config", "show", "--json", at=past).ended(0).json
    assert (shown["checks"]["gate"], shown["run"]["budget_dollars"]) == ("true", 3.0)
    again = stage.fleet("rehearse", "--last", "2", "--tries", "1", "--write", at=past).ended(0)
    again.says("already has all of these settings", "kept your values of checks.gate")


def test_a_plan_can_be_changed_before_it_is_rehearsed(stage: Stage, past: Path) -> None:
    stage.fleet("rehearse", "--last", "3", "-o", "plan.json", at=past).ended(0)
    stage.fleet("rehearse", "--last", "3", "--gate", "", "--plan", "plan.json", at=past).ended(0).says("REHEARSED")
    stage.fleet("rehearse", "--last", "2", "--gate", "", "--plan", "plan.json", at=past).ended(2).says(
        "one of the last 2"
    )


def test_a_first_commit_alone_can_not_be_rehearsed(stage: Stage, repository: Path) -> None:
    stage.fleet("rehearse", at=repository).ended(2).says("needs at least two")


def test_a_set_up_that_fails_on_an_old_commit_stops_nothing(stage: Stage, tmp_path: Path) -> None:
    """What an old lock file asks for may be gone. Each is the repository's own, so each set-up has the network."""
    lock = b"requirements.txt"
    past = make_history(
        tmp_path / "past",
        (
            Made(b"start", {lock: text(b"here\n"), b".gitignore": text(b"/ready\n")}),
            Made(b"add a file", {b"a.txt": text(b"a\n")}),
            Made(b"ask for what is gone", {lock: text(b"gone\n")}),
            Made(b"add another file", {b"b.txt": text(b"b\n")}),
            Made(b"ask for something else", {lock: text(b"here again\n")}),
        ),
    )
    (past / "fleet.toml").write_text('[worktrees]\nsetup = "grep here requirements.txt > ready"\n', encoding="utf-8")
    own = tmp_path / "own.toml"
    own.write_text('[worktrees]\nsetup_network = "base"\n', encoding="utf-8")
    given = ("--gate", "test -s ready", "--tries", "1", "--config", str(own), "--name", "dress", "--json")
    view = stage.fleet("rehearse", *given, at=past).ended(0).json
    assert (view["tree_equal"], view["landed"]) == (True, 4)
    assert [(note["title"], note["text"]) for note in view["red_in_history"]] == [
        ("ask for what is gone", "the setup command failed with exit code 1"),
        ("add another file", "the setup command failed with exit code 1"),
    ]
    with Journal(stage.folder("dress").journal) as journal:
        setups = [fact.setup for _, fact in journal.facts() if isinstance(fact, SetupRan)]
    assert [(setup.check.passed, setup.network) for setup in setups[:2]] == [(True, True), (False, True)]
