"""Which run a verb is about, where none is named; and what is told of it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.cli import common
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.errors import FleetError, UsageError
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder, git_folder, root_of
from tests.fleet.core.story import Story, plan_of
from tests.fleet.program import on_a_terminal
from tests.worktrees.conftest import git

MakeRun = Callable[[str, Path, float], RunFolder]


@pytest.fixture
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEET_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "state"


@pytest.fixture
def make_run(state_dir: Path) -> MakeRun:
    def make(name: str, repository: Path, at: float) -> RunFolder:
        folder = RunFolder(state_dir / "runs" / name)
        first = Story(plan=plan_of("api")).facts[0]
        changed = first.model_copy(update={"run": name, "repository": str(repository), "at": at})
        with Journal.create(folder.journal) as journal:
            journal.append([f.FACT.validate_python(changed.model_dump())])
        return folder

    return make


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return _repository(tmp_path / "here")


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    return _repository(tmp_path / "elsewhere")


def _repository(path: Path) -> Path:
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
    return path


def test_it_is_the_latest_of_this_repository(make_run: MakeRun, here: Path, elsewhere: Path) -> None:
    make_run("old", here, 1)
    make_run("mine", here, 2)
    make_run("newer", elsewhere, 3)
    assert common.run_to_change(None, None, here, yes=False).run == "mine"
    assert common.run_to_read(None, None, here).run == "mine"
    (here / "deep" / "er").mkdir(parents=True)
    assert common.run_to_change(None, None, here / "deep" / "er", yes=False).run == "mine"


@pytest.mark.parametrize("yes", [False, True])
@pytest.mark.parametrize("place", ["here", "tmp_path"])
def test_another_repositorys_run_is_never_changed_without_its_name(
    make_run: MakeRun, elsewhere: Path, yes: bool, place: str, request: pytest.FixtureRequest
) -> None:
    make_run("theirs", elsewhere, 1)
    with pytest.raises(UsageError) as refused:
        common.run_to_change(None, None, request.getfixturevalue(place), yes=yes)
    assert refused.value.hint == f"use --run theirs for the latest run, in {elsewhere}"
    assert common.run_to_change("theirs", None, elsewhere, yes=yes).run == "theirs"


def test_it_is_read_and_said_whose_it_is(
    make_run: MakeRun, here: Path, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run("theirs", elsewhere, 1)
    assert common.run_to_read(None, None, here).run == "theirs"
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == f"note: no runs in {here}. Using theirs, a run in {elsewhere}\n"


@pytest.mark.parametrize(("answer", "changed"), [("y\n", ["paused"]), ("n\n", []), ("\x04", [])])
def test_on_a_terminal_a_person_is_asked(
    make_run: MakeRun, state_dir: Path, here: Path, answer: str, changed: list[str]
) -> None:
    folder = make_run("theirs", _repository(here.with_name("elsewhere")), 1)
    said = on_a_terminal(here, ["pause"], typed=answer, FLEET_STATE_DIR=str(state_dir))
    assert "Use theirs, a run in" in said
    assert ("hint: use --run theirs" in said) == (not changed)
    with Journal(folder.journal) as journal:
        assert [request.kind for _, request in journal.requests()] == changed


def test_the_worktrees_of_a_repository_share_its_runs(make_run: MakeRun, here: Path, tmp_path: Path) -> None:
    git(here, "commit", "-q", "--allow-empty", "-m", "start")
    git(here, "worktree", "add", "-q", str(tmp_path / "linked"), "-b", "other")
    make_run("mine", here, 1)
    assert common.run_to_change(None, None, tmp_path / "linked", yes=False).run == "mine"
    git(tmp_path, "clone", "-q", "--bare", str(here), str(tmp_path / "bare.git"))
    make_run("bare", tmp_path / "bare.git", 2)
    assert common.run_to_change(None, None, tmp_path / "bare.git", yes=False).run == "bare"
    assert common.run_to_change(None, None, here, yes=False).run == "mine"


def test_a_dot_git_that_names_nothing_belongs_to_no_repository(tmp_path: Path) -> None:
    for text in ("", "gitdir: ", "nonsense", "gitdir:\0", "x" * 10_000):
        (tmp_path / ".git").write_text(text, encoding="utf-8")
        assert git_folder(tmp_path) is None
        assert root_of(tmp_path) == tmp_path


def test_a_current_folder_that_was_deleted_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for find in (root_of, git_folder):
        with pytest.raises(UsageError, match="the current folder no longer exists"):
            find(Path())


def test_two_names_for_a_run_must_be_one(make_run: MakeRun, here: Path) -> None:
    make_run("mine", here, 1)
    assert common.run_to_read("mine", "mine", here).run == "mine"
    assert common.run_to_read(None, "fleet/mine", here).run == "mine"
    with pytest.raises(UsageError, match="the run is named twice: mine and --run other"):
        common.run_to_read("mine", "other", here)


def test_without_any_run_the_first_step_is_named(state_dir: Path, here: Path) -> None:
    with pytest.raises(FleetError, match=f"no runs in {state_dir} yet; start one: fleet run"):
        common.run_to_read(None, None, here)


def test_a_large_plan_is_not_listed_in_a_message() -> None:
    small, large = (Story(plan=plan_of(*(f"s{number}" for number in range(count)))).state for count in (3, 40))
    with pytest.raises(UsageError, match="its subtasks are s0, s1, s2"):
        common.find_subtask(small, "other")
    with pytest.raises(UsageError) as refused:
        common.find_subtask(large, "other")
    assert refused.value.hint == f"run `fleet plans show {large.run}` to list its 40 subtasks"


def test_a_request_is_checked_against_what_was_asked_before(state_dir: Path) -> None:
    """Nothing has answered the first one yet, and the second one would be refused later, when nobody looks."""
    story = Story(Policy(max_attempts=1), plan_of("api"))
    story.attempt_fails("api")
    folder = RunFolder(state_dir / "runs" / "r")
    with Journal.create(folder.journal) as journal:
        journal.append(story.facts)
    common.make_request(folder, f.RetryRequested(at=1, subtask="api", guidance="", by="ada"), "asked")
    with pytest.raises(UsageError) as refused:
        common.make_request(folder, f.QuestionAnswered(at=2, question="q1", answer="drop it", by="ada"), "asked")
    assert refused.value.message == "q1 is already answered: retry"
    assert refused.value.hint == "run `fleet resume r` to apply the pending requests"
    with Journal(folder.journal) as journal:
        assert [request.kind for _, request in journal.requests()] == ["retry_requested"]
