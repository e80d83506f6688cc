"""Taking the result of a run: into a checkout, onto a branch that has moved, signed; and what is refused, untouched."""

from pathlib import Path

import pytest

from tests.e2e.conftest import Serve
from tests.e2e.stage import Stage, script, subtask, untouched
from tests.worktrees.conftest import git, make_repository

GATE = "test ! -f one.txt || test ! -f forbidden.txt"
"""Red where both files are there: textually, they never meet."""


@pytest.fixture
def repository(stage: Stage, model: Serve) -> Path:
    """A repository with a run of two commits, `r`."""
    files = {"README.md": "hello\n", "fleet.toml": f"[checks]\ngate = '{GATE}'\n"}
    repository = make_repository(stage.room / "work", files)
    url = model(script(subtask("one"), subtask("two", "one")))
    stage.fleet("run", "Write", "--name", "r", "--base-url", url, "--yes", at=repository).ended(0)
    return repository


def commit(repository: Path, name: str, content: str) -> str:
    (repository / name).write_text(content, encoding="utf-8")
    git(repository, "add", "-A")
    git(repository, "commit", "--quiet", "-m", name)
    return git(repository, "rev-parse", "HEAD")


def subjects(repository: Path, *which: str) -> list[str]:
    return git(repository, "log", "--reverse", "--format=%s", *which).splitlines()


def test_a_clean_checkout_is_forwarded_and_a_changed_one_is_left_alone(stage: Stage, repository: Path) -> None:
    readme, mine = repository / "README.md", repository / "mine.txt"
    readme.write_text("changed\n", encoding="utf-8")
    with untouched(repository):
        stage.fleet("merge", at=repository).ended(2).says(
            "main is checked out in", "uncommitted changes: README.md", "stash"
        )
    readme.write_text("hello\n", encoding="utf-8")
    (repository / "one.txt").write_text("of mine\n", encoding="utf-8")
    with untouched(repository):
        stage.fleet("merge", at=repository).ended(2).says("untracked files", "one.txt")
    (repository / "one.txt").unlink()
    mine.write_text("of mine\n", encoding="utf-8")
    done = stage.fleet("merge", "--json", at=repository).ended(0)
    assert done.json | {"commit": ""} == {
        "schema_version": 1,
        "run": "r",
        "branch": "main",
        "commit": "",
        "commits": 2,
        "how": "fast-forwarded",
        "untested": 0,
        "relanding": None,
        "redone": [],
        "cost_dollars": None,
    }
    assert git(repository, "rev-parse", "main") == git(repository, "rev-parse", "fleet/r") == done.json["commit"]
    assert git(repository, "status", "--porcelain") == "?? mine.txt"
    assert (repository / "two.txt").read_text(encoding="utf-8") == "two\n"
    stage.fleet("merge", "r", at=repository).ended(0).says("already contains all commits of r")


def test_a_branch_that_moved_gets_the_commits_only_where_they_fit_and_are_green(stage: Stage, repository: Path) -> None:
    start = git(repository, "rev-parse", "main")
    commit(repository, "one.txt", "something else\n")
    with untouched(repository):
        stage.fleet("merge", "--no-resolve", at=repository).ended(1).says(
            "main is unchanged: commit 1 of 2", "Write one (one)", "one.txt", "resolve it with `fleet merge r`"
        )
    git(repository, "reset", "--quiet", "--hard", start)
    commit(repository, "forbidden.txt", "x\n")
    with untouched(repository):
        stage.fleet("merge", "--no-resolve", at=repository).ended(1).says(
            "commit 1 of 2", "fails its checks on top of it", GATE
        )
    git(repository, "reset", "--quiet", "--hard", start)
    moved = commit(repository, "three.txt", "three\n")
    git(repository, "checkout", "--quiet", "--detach")
    stage.fleet("merge", at=repository).ended(2).says("HEAD is detached", "--into")
    git(repository, "checkout", "--quiet", "main")
    done = stage.fleet("merge", at=repository).ended(0)
    done.says("main has moved: landing 2 commits again", "2 commits of r, each tested on top of your branch")
    assert subjects(repository, f"{moved}..main") == ["Write one", "Write two"]
    assert git(repository, "status", "--porcelain") == ""
    assert git(repository, "show", "main:three.txt") == "three"
    stage.fleet("merge", at=repository).ended(0).says("already contains all commits of r")
    stage.nothing_runs("r")
    stage.fleet("clean", "--branches", at=repository).ended(0).says(
        "branch fleet/r of", "would be deleted", "--branches"
    )
    stage.fleet("clean", "--branches", "--apply", at=repository).ended(0).says("deleted")
    assert git(repository, "for-each-ref", "refs/heads/fleet", "refs/fleet") == ""


@pytest.mark.thorough
def test_commits_are_signed_and_signed_off_by_the_person_who_takes_them(stage: Stage, repository: Path) -> None:
    key = stage.room / "key"
    stage.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ada", "-f", str(key)]).ended(0)
    signers = stage.room / "signers"
    signers.write_text(f"ada@example.org {key.with_suffix('.pub').read_text(encoding='utf-8')}", encoding="utf-8")
    theirs = '[git]\nsign = "ssh"\nsigning_program = "touch"\n'
    (repository / "fleet.toml").write_text(theirs, encoding="utf-8")
    stage.fleet("merge", at=repository).ended(2).says("signs in your name", "a program that runs as you")
    git(repository, "checkout", "--quiet", "fleet.toml")
    settings = stage.with_(FLEET_GIT_SIGN="ssh", FLEET_GIT_SIGNING_KEY=str(key), FLEET_GIT_SIGN_OFF="true")
    with untouched(repository):
        settings.fleet("merge", at=repository).ended(2).says("git.taker is not set", "user.name")
    ada = settings.with_(FLEET_GIT_TAKER="Ada <ada@example.org>")
    ada.fleet("merge", at=repository).ended(0).says("2 commits of r")
    shown = git(
        *(repository, "-c", "gpg.format=ssh", "-c", f"gpg.ssh.allowedSignersFile={signers}", "log", "-2"),
        "--format=%G?|%an|%cn|%(trailers:key=Signed-off-by,valueonly)|%(trailers:key=Fleet-Task,valueonly)",
    )
    lines = [line for line in "".join(shown.split("\n")).split("G|") if line]
    assert [line.split("|")[1:] for line in lines] == [
        ["Ada", "Ada <ada@example.org>", "two"],
        ["Ada", "Ada <ada@example.org>", "one"],
    ]
    assert all(line.startswith("fleet coder") for line in lines)
    assert git(repository, "rev-parse", "main^{tree}") == git(repository, "rev-parse", "fleet/r^{tree}")
    assert git(repository, "status", "--porcelain") == ""
