"""A pull request of the fleet is tended on a scripted forge: reviews are answered once, red checks become green."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.conftest import Serve
from tests.e2e.stage import Done, Json, Stage, script, solve, subtask
from tests.forge.scripted_forge import ScriptedForge
from tests.worktrees.conftest import git, make_repository

URL = "https://github.com/acme/shop.git"


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


def test_a_review_and_a_red_check_are_worked_on_pushed_and_answered_once(begin: Begin) -> None:
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
    assert "E  three is missing" in state.spec("check-1").goal
    assert "Please write two as well." in state.spec("thread-1").goal
    assert git(scene.repository, "branch", "--list", "fleet/r-pr1") == ""

    assert scene.tend("--json").ended(0).json["status"] == "quiet"
    assert len(forge.replies_of(scene.number)[thread]) == 1
