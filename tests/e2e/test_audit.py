"""Every commit of a result branch accounted for; whatever is changed afterwards, in the journal or in git, is seen."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.e2e.conftest import Serve
from tests.e2e.stage import Json, Stage, script, solve, subtask, untouched, wrong
from tests.worktrees.conftest import git

NAME, BRANCH = "r", "refs/heads/fleet/r"
GATE = "echo all is well; test -f README.md"
AS_ADA = ("-c", "user.name=Ada", "-c", "user.email=ada@localhost")


@pytest.fixture
def order(repository: Path, model: Serve) -> tuple[str, ...]:
    """A run that lands two subtasks, one of them at the second try."""
    again = {
        "when": {"failed": "two"},
        "revision": {"assessment": "It was a slip.", "retry": [{"id": "two", "guidance": "Write the word."}]},
    }
    tasks = [subtask("one"), subtask("two", "one")]
    url = model(script(*tasks, steps=[again], workers={"two": [wrong("two"), solve("two")]}))
    return ("run", "Write", "--name", NAME, "--base-url", url, "--repo", str(repository))


@pytest.fixture
def gated(stage: Stage) -> Stage:
    return stage.with_(FLEET_CHECKS_GATE=GATE)


def test_each_commit_has_its_chain_and_git_agrees(gated: Stage, repository: Path, order: tuple[str, ...]) -> None:
    with gated.with_(FLEET_RUN_REVIEW="true").going(*order) as going:
        gated.wait(NAME, lambda state: state.plan.subtasks, going)
        gated.fleet("approve", NAME).ended(0)
        going.done().ended(0)
    with untouched(repository):
        view: Json = gated.fleet("audit", NAME, "--json").ended(0).json
    commits = view["commits"]
    listed = git(repository, "log", "--reverse", "--format=%H %T", "main..fleet/r").splitlines()
    assert [f"{one['commit']} {one['tree']}" for one in commits] == listed
    assert [one["landing"]["tree"] for one in commits] == [line.split()[1] for line in listed]
    assert (view["epic"], view["ok"], view["simulated"], view["problems"]) == ("Write", True, True, [])
    for one, id_ in zip(commits, ("one", "two"), strict=True):
        assert (one["subtask"]["id"], one["problems"]) == (id_, [])
        assert one["plan"][0]["why"] == "This is what is to be done."
        assert (one["approval"]["version"], bool(one["approval"]["by"])) == (1, True)
        ran = {run["command"]: run for run in one["landing"]["checks"]}
        assert ran[GATE]["output"] == "all is well\n"
        assert {run["tree"] for run in ran.values()} == {one["tree"]}
    failed, landed = commits[1]["attempts"]
    assert (failed["failure"]["kind"], failed["landed"]) == ("check", None)
    assert (landed["guidance"], landed["landed"]) == ("Write the word.", commits[1]["commit"])
    assert landed["model"] == "claude-haiku-5-5"
    assert commits[1]["plan"][-1]["why"] == "It was a slip."
    shown = gated.fleet("audit", NAME).ended(0)
    shown.says("(simulated model)", "version 1 by", "FAILED   grep -qx two two.txt", "| all is well", "audit passed")


@pytest.mark.thorough
def test_whatever_is_changed_afterwards_is_reported_as_a_problem(
    gated: Stage, repository: Path, order: tuple[str, ...]
) -> None:
    gated.fleet(*order, "--yes").ended(0)
    journal = gated.folder(NAME).journal

    def refused(*messages: str) -> None:
        gated.fleet("audit", NAME).ended(1).says("audit failed", *messages)
        assert gated.fleet("audit", NAME, "--json").ended(1).json["ok"] is False

    gated.fleet("audit", NAME).ended(0).says("not reviewed", "audit passed: 2 commits")
    tip, below = git(repository, "rev-parse", "fleet/r"), git(repository, "rev-parse", "fleet/r^")
    tree, message = git(repository, "rev-parse", f"{tip}^{{tree}}"), git(repository, "log", "-1", "--format=%B", tip)

    with moved(repository, git(repository, *AS_ADA, "commit-tree", tree, "-p", tip, "-m", "By hand")):
        refused("By hand", "does not belong to this run")
    with moved(repository, git(repository, *AS_ADA, "commit-tree", f"{below}^{{tree}}", "-p", below, "-m", message)):
        refused(f"which landed as {tip[:12]}", "it was rewritten or forged", "is not on fleet/r")
    with moved(repository, below):
        refused(f"landed and published as {tip[:12]}")
    with moved(repository, None):
        refused("no branch fleet/r exists", "Write two", "published")

    with edited(journal, "update facts set body = replace(body, 'claude-haiku-5-5', 'claude-opus-5-5')"):
        refused("its trailer Assisted-by is claude-haiku-5-5, but claude-opus-5-5 in the journal")
    with edited(journal, "update facts set body = replace(body, ?, ?)", tree, "0" * 40):
        refused(f"its tree is {tree[:12]}, but the tested and landed tree is 000000000000")
    with edited(journal, "delete from facts where kind = 'attempt_verified'"):
        refused("are missing from the journal", "does not record that its checks passed")
    with edited(journal, "update facts set body = replace(body, '\"passed\":true', '\"passed\":false')"):
        refused("attempt 2 landed, but one of its checks failed", "a check of the landed tree failed")
    with edited(journal, "delete from facts where kind = 'plan_revised'"):
        refused("contradicts earlier facts")
    with edited(journal, "update facts set body = 'nonsense' where kind = 'attempt_verified'"):
        gated.fleet("audit", NAME).ended(3).says("this version of fleet can't read")
    gated.fleet("audit", NAME).ended(0)


def test_a_moved_repository_can_be_named_and_a_missing_one_is_reported(
    stage: Stage, repository: Path, order: tuple[str, ...]
) -> None:
    stage.fleet(*order, "--yes").ended(0)
    away = repository.rename(repository.with_name("elsewhere"))
    stage.fleet("audit", NAME).ended(2).says("no longer exists", "--moved-to")
    stage.fleet("audit", NAME, "--moved-to", str(away)).ended(0).says("audit passed: 2 commits")


@contextmanager
def moved(repository: Path, to: str | None) -> Iterator[None]:
    """The result branch somewhere else, or gone, for a while."""
    was = git(repository, "rev-parse", BRANCH)
    git(repository, *(("update-ref", BRANCH, to) if to is not None else ("update-ref", "-d", BRANCH)))
    yield
    git(repository, "update-ref", BRANCH, was)


@contextmanager
def edited(journal: Path, statement: str, *values: str) -> Iterator[None]:
    """A journal that is changed for a while."""
    with closing(sqlite3.connect(journal)) as db:
        kept = db.execute("select seq, kind, body from facts").fetchall()
        changed = db.execute(statement, values).rowcount
        db.commit()
        assert changed > 0
        yield
        db.execute("delete from facts")
        db.executemany("insert into facts values (?, ?, ?)", kept)
        db.commit()
