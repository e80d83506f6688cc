"""The library of plans: found by name, kept on request, never written over or out of its folder by accident."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fleet.app.input_files import dump_plan, load_plan
from fleet.cli.entry import app
from fleet.config.toml import parse_toml
from fleet.core.base.ids import SubtaskId
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.core.plans.parameters import Filled, fill, read_plan
from fleet.core.plans.plan import Plan
from fleet.core.plans.revision import PlanContext
from fleet.errors import UsageError
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder
from tests.dashboards.hostile import HOSTILE, problems
from tests.fleet.core.pretend import subtask_of
from tests.fleet.core.story import Story, plan_of
from tests.fleet.program import on_a_terminal

RELEASE = """\
# what a release needs
goal = "Release {set:version}"

[parameters.version]
help = "which version"

[parameters.strategy]
type = "choice"
choices = ["blue_green", "rolling"]
default = "rolling"

[[subtasks]]
id = "notes"
title = "Notes for {set:version}"
goal = "Write them, for {set:strategy}."
acceptance = [{ criterion = "they are there", run = "grep -q {set:version} NOTES" }]
"""


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository to stand in, with a library and a state directory of its own."""
    root = tmp_path / "repository"
    (root / ".git").mkdir(parents=True)
    monkeypatch.chdir(root)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("FLEET_STATE_DIR", str(tmp_path / "state"))
    return root


@pytest.fixture
def release(room: Path) -> Path:
    path = room.parent / "release.toml"
    path.write_text(RELEASE)
    return path


def says(*words: str | Path, typed: str = "") -> str:
    result = CliRunner().invoke(app, ["plans", *map(str, words)], input=typed, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def refuses(*words: str | Path, typed: str = "") -> str:
    result = CliRunner().invoke(app, ["plans", *map(str, words)], input=typed)
    assert isinstance(result.exception, UsageError), result.output
    return str(result.exception)


def a_run(state: Path, name: str, story: Story) -> RunFolder:
    folder = RunFolder(state / "runs" / name)
    first = story.facts[0].model_copy(update={"run": name})
    with Journal.create(folder.journal) as journal:
        journal.append([f.FACT.validate_python(first.model_dump()), *story.facts[1:]])
    return folder


@pytest.fixture
def done(room: Path) -> RunFolder:
    story = Story(plan=plan_of("a", "b needs a", "c", failure_action="skip"))
    story.attempt_fails("c")
    story.landed("a")
    story.landed("b")
    assert story.state.ended
    return a_run(room.parent / "state", "shop-1", story)


# ---- keeping and finding --------------------------------------------------------------------------------------------


def test_a_plan_is_saved_as_it_is_and_called_by_its_name(room: Path, release: Path) -> None:
    assert "fleet run --plan release" in says("save", release, "release")
    assert (room / ".fleet/plans/release.toml").read_text() == RELEASE
    assert [path.name for path in room.iterdir() if path.name != ".git"] == [".fleet"]
    assert "Plan: Release v1" in says("show", "release", "--set", "version=v1")
    assert says("show", release, "--set", "version=v1") == says("show", "release", "--set", "version=v1")
    assert "notes" in says("graph", "release", "--set", "version=v1")
    assert "is valid" in says("check", "release", "--set", "version=v1")
    assert "the plans are the same" in says("diff", "release", release, "--set", "version=v1")


def test_the_users_own_library_is_beside_the_users_configuration(room: Path, release: Path) -> None:
    says("save", release, "release", "--user")
    assert (room.parent / "config/fleet/plans/release.toml").read_text() == RELEASE
    assert list(room.iterdir()) == [room / ".git"]
    assert "Release v2" in says("show", "release", "--set", "version=v2")


def test_the_list_shows_what_each_plan_takes(room: Path, release: Path) -> None:
    assert str(room / ".fleet/plans") in says("list")
    says("save", release, "release")
    (room / ".fleet/plans/broken.json").write_text("{")
    (room / ".fleet/plans/README.md").write_text("no plan")
    listed = says("list")
    assert "release  repository  Release {set:version}" in listed
    assert "version (string; required): which version" in listed
    assert "strategy (one of blue_green, rolling; default rolling)" in listed
    assert "broken   repository  can't be read" in listed
    broken, entry = json.loads(says("list", "--json"))
    assert "invalid JSON" in broken["problem"]
    assert (entry["name"], entry["where"], entry["file"]) == (
        "release",
        "repository",
        str(room / ".fleet/plans/release.toml"),
    )
    assert entry["parameters"][1] == {
        "name": "strategy",
        "type": "choice",
        "required": False,
        "default": "rolling",
        "choices": ["blue_green", "rolling"],
        "help": "",
    }


def test_a_list_is_harmless_however_hostile_the_plans(room: Path) -> None:
    folder = room / ".fleet/plans"
    folder.mkdir(parents=True)
    plan = {"goal": HOSTILE, "parameters": {"a": {"help": HOSTILE, "default": HOSTILE.replace("\n", " ")}}}
    (folder / "x.json").write_text(json.dumps(plan))
    (folder / "\x1b[2Jy.json").write_text("{}")
    assert problems(says("list").splitlines()) == []


def test_a_name_that_could_mean_two_plans_is_refused_with_both(room: Path, release: Path) -> None:
    says("save", release, "release")
    says("save", release, "release", "--user")
    said = refuses("show", "release", "--set", "version=v1")
    assert "2 plans are called 'release'" in said
    assert str(room / ".fleet/plans/release.toml") in said
    assert "Release v1" in says("show", ".fleet/plans/release.toml", "--set", "version=v1")


def test_an_unknown_name_gets_the_nearest_one_as_a_hint(release: Path) -> None:
    says("save", release, "release")
    assert "no plan and no run is called 'relaese'; did you mean 'release'?" in refuses("show", "relaese")
    assert "can't read" in refuses("show", "relaese.toml")


def test_nothing_is_written_over_another_plan_or_out_of_the_repository(
    room: Path, release: Path, tmp_path: Path
) -> None:
    says("save", release, "release")
    other = tmp_path / "other.json"
    other.write_text(dump_plan(plan_of("x"), toml=False))
    assert "already exists; use --force" in refuses("save", other, "release")
    says("save", other, "release", "--force")
    assert [path.name for path in (room / ".fleet/plans").iterdir()] == ["release.json"]
    for name in ("../x", "a/b", ".x", "x.toml", ""):
        assert "invalid plan name" in refuses("save", other, name)
    (tmp_path / "elsewhere").mkdir()
    (room / ".fleet/plans/release.json").unlink()
    (room / ".fleet/plans").rmdir()
    (room / ".fleet/plans").symlink_to(tmp_path / "elsewhere")
    assert "links to a folder outside the repository" in refuses("save", other, "release")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_link_in_the_library_is_replaced_and_not_followed(room: Path, release: Path, tmp_path: Path) -> None:
    (room / ".fleet/plans").mkdir(parents=True)
    mine = tmp_path / "mine"
    mine.write_text("precious")
    (room / ".fleet/plans/release.toml").symlink_to(mine)
    assert "exists" in refuses("save", release, "release")
    says("save", release, "release", "--force")
    assert mine.read_text() == "precious"


def test_a_file_that_is_not_a_plan_is_not_saved(room: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text(RELEASE.replace("{set:strategy}", "{set:strateggy}"))
    assert "does not declare 'strateggy'; did you mean 'strategy'?" in refuses("save", bad, "bad")
    bad.write_text(RELEASE.replace('id = "notes"', 'id = "notes"\ndepends_on = ["{set:version}"]'))
    said = refuses("save", bad, "bad")
    assert "unknown subtask 'version'" in said
    assert "checked with version=version: use --set" in said
    assert list(room.iterdir()) == [room / ".git"]


def test_values_are_refused_with_the_list_of_what_there_is(release: Path) -> None:
    said = refuses("check", release, "--set", "strategy=x")
    assert "version: is required: pass --set version=…" in said
    assert "'x' is not one of blue_green, rolling" in said
    assert "parameters:\n  version (string; required): which version" in said
    assert "use --set NAME=VALUE" in refuses("check", release, "--set", "version")
    assert "given twice" in refuses("check", release, "--set", "version=1", "--set", "version=2")


def test_a_script_reads_with_which_values_a_plan_was_checked(release: Path) -> None:
    wrong = CliRunner().invoke(app, ["plans", "check", str(release), "--json"])
    assert (type(wrong.exception), wrong.output) == (UsageError, "")  # the program prints its errors as JSON
    right = json.loads(says("check", release, "--json", "--set", "version=v1"))
    assert right == {
        "schema_version": 1,
        "ok": True,
        "warnings": [],
        "values": {"version": "v1", "strategy": "rolling"},
    }


@pytest.mark.usefixtures("room")
def test_a_plan_without_parameters_takes_none(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text(dump_plan(plan_of("a"), toml=True))
    assert "is not a parameter of the plan" in refuses("show", path, "--set", "a=1")
    assert "neither plan declares this parameter" in refuses("diff", path, path, "--set", "a=1")


def test_the_plans_of_the_page_about_them_are_plans() -> None:
    page = Path(__file__).parents[3] / "docs" / "guides" / "plans.md"
    shown = re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert len(shown) > 1
    for text in shown:
        data = parse_toml(text, name="plans.md")
        if "checks" in data:  # a configuration
            continue
        filled = fill(data, {"version": "v1"} if "parameters" in data else {})
        assert isinstance(filled, Filled), filled
        assert isinstance(read_plan(filled.document), Plan)


# ---- runs -----------------------------------------------------------------------------------------------------------


def test_of_a_run_is_kept_what_worked(room: Path, done: RunFolder) -> None:
    said = says("save", done.run, "shop")
    assert "note: left out c: skipped" in said
    plan = load_plan(room / ".fleet/plans/shop.toml", PlanContext())
    assert (plan.plan_id, plan.ids, plan.version) == ("shop", ("a", "b"), 1)
    assert "a" in says("graph", "shop")


def test_a_plan_and_a_run_of_one_name_are_kept_apart(done: RunFolder, release: Path) -> None:
    says("save", release, done.run)
    assert "is both a plan and a run" in refuses("show", done.run)
    assert "the epic" in says("show", f"fleet/{done.run}")
    assert "can't read fleet/plan.toml" in refuses("show", "fleet/plan.toml")
    assert "were set when it started" in refuses("show", f"fleet/{done.run}", "--set", "version=1")


def test_a_run_that_has_not_ended_has_no_plan_to_save(room: Path) -> None:
    a_run(room.parent / "state", "going", Story(plan=plan_of("a")))
    assert "has not ended" in refuses("save", "going", "x")
    assert list(room.iterdir()) == [room / ".git"]


# ---- rollback plans -------------------------------------------------------------------------------------------------


def test_a_rollback_plan_is_found_in_the_library_and_has_the_plans_values(room: Path, release: Path) -> None:
    release.write_text('rollback_plan = "back"\n' + RELEASE)
    assert "back is not in the library" in says("save", release, "release")
    assert "rollback plan 'back' not found" in says("check", "release", "--set", "version=v1")
    back = room.parent / "back.toml"
    back.write_text(RELEASE.replace('"notes"', '"undo"').replace("Release", "Take back"))
    says("save", back, "back", "--user")
    assert "no rollback plan" not in says("check", "release", "--set", "version=v1")
    back.write_text(back.read_text().replace("[parameters.version]", "[parameters.other]\n[parameters.version]"))
    says("save", back, "back", "--user", "--force")
    assert "other: is required" in refuses("check", "release", "--set", "version=v1")


# ---- editing --------------------------------------------------------------------------------------------------------


def edits(*words: str | Path, typed: str = "") -> str:
    """What a person sees who edits a plan, with the editor of the fixture."""
    folder = Path.cwd().parent
    environment = {"XDG_CONFIG_HOME": str(folder / "config"), "FLEET_STATE_DIR": str(folder / "state")}
    arguments = ["plans", "edit", *map(str, words)]
    return on_a_terminal(Path.cwd(), arguments, typed=typed, VISUAL=str(folder / "editor"), NO_COLOR="1", **environment)


@pytest.fixture
def editor(tmp_path: Path) -> Path:
    """An editor that follows a list of `sed` scripts, one each time it is opened."""
    scripts = tmp_path / "scripts"
    program = tmp_path / "editor"
    program.write_text(f'#!/bin/sh\nsed -i "$(head -n 1 {scripts})" "$1"\nsed -i 1d {scripts}\n')
    program.chmod(0o755)
    return scripts


def test_a_plan_is_edited_checked_shown_and_only_then_written(release: Path, editor: Path) -> None:
    editor.write_text("s/Notes for/{set:oops}/\ns/{set:oops}/Words for/\n")
    said = edits(release, typed="y\n")
    assert "does not declare 'oops'" in said
    assert "Edit it again?" in said
    assert '-title = "Notes for {set:version}"' in said
    assert '+title = "Words for {set:version}"' in said
    assert release.read_text() == RELEASE.replace("Notes for", "Words for"), "comments and all"


def test_who_does_not_go_back_changes_nothing_and_loses_nothing(release: Path, editor: Path) -> None:
    editor.write_text("s/Notes for/{set:oops}/\n")
    said = edits(release, typed="n\n")
    assert "the plan is unchanged" in said
    assert release.read_text() == RELEASE
    kept = Path(said.partition("is saved in ")[2].splitlines()[0])
    assert "{set:oops}" in kept.read_text()
    kept.unlink()
    kept.parent.rmdir()


def test_an_edit_that_changes_nothing_writes_nothing(release: Path, editor: Path) -> None:
    editor.write_text("\n")
    assert "is unchanged" in edits(release)


def test_without_a_terminal_the_message_says_what_to_do_instead(release: Path, room: Path) -> None:
    assert f"fleet plans check {release}" in refuses("edit", release)
    a_run(room.parent / "state", "going", Story(plan=plan_of("a")))
    assert "fleet approve going --plan plan.json" in refuses("edit", "going")


def test_the_edited_plan_of_a_run_is_handed_in_and_waits_for_approval(room: Path, editor: Path) -> None:
    waiting = Story(policy=Policy(review=True, reviewing="human"), plan=plan_of("a"))
    folder = a_run(room.parent / "state", "careful", waiting)
    editor.write_text("s/Build a/Build more of a/\n")
    said = edits("careful")
    assert "~ a title: Build a → Build more of a" in said
    assert "fleet approve careful" in said
    result = CliRunner().invoke(app, ["approve", "careful"], catch_exceptions=False)
    assert "version 1 approved" in result.output
    with Journal(folder.journal) as journal:
        kinds = [request.kind for _, request in journal.requests()]
    assert kinds == ["plan_revised", "plan_approved"]


def test_a_waiting_run_is_given_a_plan_of_the_library_instead(room: Path, release: Path) -> None:
    release.write_text(RELEASE.replace('goal = "Release {set:version}"', ""))
    says("save", release, "release")
    waiting = Story(policy=Policy(review=True, reviewing="human"), plan=plan_of("a"))
    folder = a_run(room.parent / "state", "careful", waiting)
    asked = ["approve", "careful", "--plan", "release"]
    refused = CliRunner().invoke(app, asked)
    assert "version: is required" in str(refused.exception)
    result = CliRunner().invoke(app, [*asked, "--set", "version=v9"], catch_exceptions=False)
    assert "version 1 approved" in result.output
    assert folder.requested_state().spec(SubtaskId("notes")).title == "Notes for v9"
    assert subtask_of(folder.requested_state(), "a").dropped is not None
    unset = CliRunner().invoke(app, ["approve", "careful", "--set", "version=v9"])
    assert "--set requires --plan" in str(unset.exception)


def test_a_run_that_is_over_is_kept_instead(done: RunFolder) -> None:
    assert f"fleet plans save {done.run} NAME" in edits(done.run)
