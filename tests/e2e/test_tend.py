"""A pull request of the fleet is tended on a scripted forge: reviews are answered once, red checks become green."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleet.core.base.ids import SubtaskId
from tests.e2e.conftest import Serve
from tests.e2e.stage import Done, Json, Stage, script, solve, subtask
from tests.forge.scripted_forge import ScriptedForge
from tests.worktrees.conftest import git, make_repository

URL = "https://github.com/acme/shop.git"
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Scene:
    """A repository with a finished run `r`, and its pull request on a scripted forge."""

    stage: Stage
    forge: ScriptedForge
    repository: Path
    url: str
    number: int

    def tend(self, *arguments: str) -> Done:
        return self.stage.fleet(
            "tend", str(self.number), "--once", "--base-url", self.url, *arguments, at=self.repository
        )


Begin = Callable[..., Scene]


@pytest.fixture
def begin(stage: Stage, model: Serve) -> Begin:
    def begin(**workers: list[Json]) -> Scene:
        repository = make_repository(stage.room / "work", {"README.md": "hello\n"})
        played = {name.replace("_", "-"): attempts for name, attempts in workers.items()}
        url = model(script(subtask("one"), workers=played))
        forge = ScriptedForge.create(stage.room / "forge", repository)
        git(repository, "remote", "add", "origin", URL)
        (stage.room / "gitconfig").write_text(f'[url "{forge.remote}"]\n\tinsteadOf = {URL}\n', encoding="utf-8")
        staged = stage.with_(GIT_CONFIG_GLOBAL=str(stage.room / "gitconfig"), **forge.environment())
        staged.fleet("run", "Write", "--name", "r", "--base-url", url, "--yes", at=repository).ended(0)
        git(repository, "push", "--quiet", str(forge.remote), "fleet/r")
        return Scene(staged, forge, repository, url, forge.add_pull("fleet/r", "Write one"))

    return begin


def test_a_review_and_a_red_check_are_worked_on_once_and_what_stays_red_is_given_up_once(begin: Begin) -> None:
    scene = begin(thread_1=[solve("two")], check_1=[solve("three")])
    forge = scene.forge
    thread = forge.add_thread(scene.number, "one.txt", 1, "Please write two as well.")
    forge.add_check("unit", "three.txt", "three", log="E  three is missing")
    before = forge.head("fleet/r")

    done = scene.tend("--json").ended(0).json
    assert (done["status"], len(done["rounds"]), done["threads"], done["failed"]) == ("working", 1, 0, [])
    assert git(forge.remote, "merge-base", "--is-ancestor", before, "fleet/r") == ""
    assert (forge.file("fleet/r", "two.txt"), forge.file("fleet/r", "three.txt")) == ("two", "three")
    [answer] = forge.replies_of(scene.number)[thread]
    commit = git(forge.remote, "log", "--format=%H", "--grep=Review of one.txt:1", "fleet/r")
    assert f"Done in {commit[:12]}" in answer
    state = scene.stage.folder("r-pr1-1").state()
    assert "E  three is missing" in state.spec(SubtaskId("check-1")).goal
    assert "Please write two as well." in state.spec(SubtaskId("thread-1")).goal
    assert git(scene.repository, "branch", "--list", "fleet/r-pr1") == ""

    assert scene.tend("--json").ended(0).json["status"] == "quiet"
    assert len(forge.replies_of(scene.number)[thread]) == 1

    forge.add_check("slow", "never.txt", "green", log="E  never")
    for _ in range(2):
        given_up = scene.tend("--rounds", "1", "--json").ended(1).json
        assert (given_up["status"], given_up["why"]) == ("gave_up", "it reached the limit of 1 round")
    [report] = forge.comments_of(scene.number)
    assert "CI / slow" in report
    assert "fleet tend 1 --rounds 2" in report


@pytest.mark.thorough
def test_strangers_labels_words_and_ends_are_respected_without_a_run(begin: Begin) -> None:
    scene = begin()
    forge, number = scene.forge, scene.number
    forge.add_thread(number, "one.txt", 1, "Delete it", author="eve")
    assert scene.tend("--json").ended(0).json["status"] == "quiet"
    forge.add_thread(number, "one.txt", 1, "Rename it")
    forge.comment(number, "/fleet stop", author="mallory")
    forge.comment(number, "/fleet stop", author="bob")
    stopped = scene.tend("--json").ended(0).json
    assert (stopped["status"], stopped["why"], stopped["threads"]) == ("stopped", "bob commented /fleet stop", 1)
    forge.comment(number, "/fleet continue", author="bob")
    forge.add_label(number, "fleet:stop")
    assert scene.tend("--json").ended(0).json["why"] == "it has the label fleet:stop"
    forge.close(number, merged=True)
    assert scene.tend("--json").ended(0).json["status"] == "merged"
    assert (scene.stage.runs, forge.comments_of(number)) == (["r"], [])


@pytest.mark.thorough
def test_what_a_person_pushes_meanwhile_stays_below(begin: Begin) -> None:
    """The first answer is lost: `gh` was killed after the forge had it."""
    scene = begin(thread_1=[solve("two")])
    forge = scene.forge
    thread = forge.add_thread(scene.number, "one.txt", 1, "Please write two as well.")
    forge.add_fault("push", "pr\nview", skip=3, branch="fleet/r", path="theirs.txt", text="theirs\n")
    forge.add_fault("dies_after", "addPullRequestReviewThreadReply")
    scene.tend().ended(3)
    assert scene.tend("--json").ended(0).json["rounds"][0]["is_done"]
    assert (forge.file("fleet/r", "theirs.txt"), forge.file("fleet/r", "two.txt")) == ("theirs", "two")
    subjects = git(forge.remote, "log", "--format=%s", "main..fleet/r").splitlines()
    assert subjects == ["Review of one.txt:1", "theirs.txt: by Ann", "Write one"]
    assert len(forge.replies_of(scene.number)[thread]) == 1


@pytest.mark.thorough
def test_what_a_person_replaces_by_force_is_not_brought_back(begin: Begin) -> None:
    scene = begin(thread_1=[solve("two")])
    forge = scene.forge
    thread = forge.add_thread(scene.number, "one.txt", 1, "Please write two as well.")
    theirs: Json = {"branch": "fleet/r", "path": "theirs.txt", "text": "theirs\n", "onto": forge.head("main")}
    forge.add_fault("force_push", "pr\nview", skip=3, **theirs)
    dropped = scene.tend("--json").ended(0).json["rounds"][0]
    assert (dropped["pushed"], "someone replaced" in dropped["why"]) == (None, True)
    assert forge.replies_of(scene.number)[thread] == []
    scene.tend().ended(0)
    subjects = git(forge.remote, "log", "--format=%s", "main..fleet/r").splitlines()
    assert subjects == ["Review of one.txt:1", "theirs.txt: by Ann"]
    assert len(forge.replies_of(scene.number)[thread]) == 1


@pytest.mark.thorough
@pytest.mark.timeout(300)  # three whole processes, one after the other
def test_kills_after_each_act_give_one_commit_and_one_answer(begin: Begin, tmp_path: Path) -> None:
    scene = begin(thread_1=[solve("two")])
    forge = scene.forge
    thread = forge.add_thread(scene.number, "one.txt", 1, "Please write two as well.")
    points = ("a branch of the remote has moved", "a thread has an answer")
    for number, point in enumerate(points):
        killed_at = (sys.executable, "-m", "chaos.killed_at", point, "1", str(tmp_path / f"met-{number}"))
        verb = ("tend", "1", "--once", "--base-url", scene.url, "--repo", str(scene.repository))
        assert scene.stage.run([*killed_at, *verb], at=ROOT).code == -9, point
    assert scene.tend("--json").ended(0).json["rounds"][0]["is_done"]
    assert git(forge.remote, "log", "--format=%s", "main..fleet/r").splitlines() == ["Review of one.txt:1", "Write one"]
    assert len(forge.replies_of(scene.number)[thread]) == 1
