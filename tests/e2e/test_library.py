"""A plan of the library, from its file to the result branch and back into the library."""

import json
import sys
from pathlib import Path

from fleet.core.base.ids import SubtaskId
from tests.e2e.conftest import Serve
from tests.e2e.stage import Stage, landed, script, solve, subtask, untouched
from tests.e2e.terminal import at_a_terminal

SHOUTS = """\
goal = "Write {set:what} down"

[parameters.what]
help = "what to write"

[parameters.file]
default = "one.txt"

[[subtasks]]
id = "one"
title = "Write {set:what}"
goal = "one.txt says {set:what}."
acceptance = [{ criterion = "it is there", run = "grep -q pwned {set:file}" }]
"""
HOSTILE = "one'; touch /tmp/pwned #"


def kept(repository: Path, text: str = SHOUTS) -> None:
    folder = repository / ".fleet" / "plans"
    folder.mkdir(parents=True)
    (folder / "shout.toml").write_text(text, encoding="utf-8")


def test_a_plan_of_the_library_runs_by_its_name_with_values_and_is_reviewed_like_any(
    stage: Stage, repository: Path, model: Serve
) -> None:
    """By the rules, which let nothing pass here, then by a person; what is approved has its values in it."""
    kept(repository)
    own = stage.room / "rules.toml"
    own.write_text('[review]\npaths = ["**"]\n', encoding="utf-8")
    url = model(script(workers={"one": [solve("one", files={"one.txt": f"{HOSTILE}\n"})]}))
    asked = ("run", "--plan", "shout", "--set", f"what={HOSTILE}", "--name", "r", "--base-url", url)
    with untouched(repository), stage.going(*asked, "--review", "auto", "--config", str(own), at=repository) as going:
        stage.wait("r", lambda state: state.plan.subtasks, going)
        status = stage.status("r")
        assert status["state"] == "awaiting approval"
        assert status["plan_values"] == {"what": HOSTILE, "file": "one.txt"}
        assert status["plan_version"] == 1
        stage.fleet("approve", "r").ended(0).says("plan version 1 approved")
        going.done().ended(0).says("LANDED")
    state = stage.folder("r").state()
    assert state.spec(SubtaskId("one")).title == f"Write {HOSTILE}"
    assert landed(repository, "r") == ["one"]
    stage.fleet("audit", "r", at=repository).ended(0).says(f"set      what = {HOSTILE}")


def test_what_worked_is_saved_and_runs_again(stage: Stage, repository: Path, model: Serve) -> None:
    url = model(script(subtask("one"), subtask("two", "one")))
    stage.fleet("run", "Write", "--name", "first", "--yes", "--base-url", url, at=repository).ended(0)
    with untouched(repository):
        stage.fleet("plans", "save", "first", "again", "--user", at=repository).ended(0).says("fleet run --plan again")
        stage.fleet("plans", "list", at=repository).ended(0).says("again", "user", "Write")
        done = stage.fleet("run", "--plan", "again", "--name", "second", "--yes", "--base-url", url, at=repository)
        done.ended(0).says("LANDED")
    assert sorted(landed(repository, "second")) == ["one", "two"]
    assert stage.status("second")["tokens"]["planner"]["calls"] == 0


def test_values_are_asked_for_before_anything_runs(stage: Stage, repository: Path) -> None:
    kept(repository)
    for words, says in (
        ((), "what is missing"),
        (("--set", "waht=x"), "did you mean 'what'?"),
        (("--set", "what=x", "--set", f"file={HOSTILE}"), "could change the meaning of this command"),
    ):
        done = stage.fleet("run", "--plan", "shout", *words, "--base-url", "http://127.0.0.1:9", at=repository).ended(2)
        done.says("parameters:", says.replace("what is missing", "what: is required"))
    stage.fleet("run", "Write", "--set", "what=x", at=repository).ended(2).says("--set requires --plan")
    assert stage.runs == []


def test_the_plan_of_a_run_that_waits_is_edited_at_a_terminal_and_then_approved(
    stage: Stage, repository: Path, model: Serve
) -> None:
    editor = stage.room / "edit.py"
    editor.write_text(
        "import sys, pathlib\np = pathlib.Path(sys.argv[1])\np.write_text(p.read_text().replace('Write', 'Draw'))\n"
    )
    stage = stage.with_(FLEET_RUN_REVIEW="true", EDITOR=f"{sys.executable} {editor}")
    url = model(script(subtask("one")))
    path = stage.room / "plan.json"
    path.write_text(json.dumps({"goal": "g", "subtasks": [subtask("one")]}), encoding="utf-8")
    name = stage.run_name
    stage.fleet("run", "--plan", str(path), "--name", name, "--base-url", url, "--detach", at=repository).ended(0)
    stage.wait(name, lambda state: state.plan.subtasks)
    stage.fleet("plans", "edit", name).ended(2).says("requires a terminal", f"fleet approve {name} --plan plan.json")
    with at_a_terminal(stage, "plans", "edit", name) as terminal:
        terminal.shows("~ one title: Write one → Draw one")
        terminal.shows(f"fleet approve {name}")
        terminal.ended(0)
    stage.fleet("approve", name).ended(0).says("version 2 approved")
    state = stage.wait(name, lambda state: state.ending)
    assert (state.ending, state.spec(SubtaskId("one")).title) == ("landed", "Draw one")
