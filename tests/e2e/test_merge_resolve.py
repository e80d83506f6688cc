"""Taking a result onto a branch that has moved, where it does not fit: resolvers, their failures, and interruptions."""

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Serve
from tests.e2e.stage import KEY_NAME, Json, Stage, script, solve, subtask, untouched
from tests.fleet.core.pretend import subtask_of
from tests.worktrees.conftest import git, make_repository

GATE = "test ! -f one.txt || test ! -f forbidden.txt"
"""Red where both files are there: textually, they never meet."""
MERGED = {"do": "solve", "files": {"one.txt": "something else\none\n"}, "says": {"summary": "Both lines are there."}}
STEPS = (
    "the commits of a result are pinned for a relanding",
    "facts are committed",
    "a worktree is leased",
    "a commit is pinned",
    "a branch was moved",
    "a tested copy of a result is pinned",
    "a result is in the user's repository, and no branch names it",
    "a checkout has the files of a result, and its index does not",
    "a checkout is at a result, and its branch is not",
    "a branch of the user's is at a result",
)
"""In the order in which one command after another gets there."""
KILLED_AT = """
import os, signal, sys
from fleet.cli.entry import run_program
from fleet.runs.crash_points import listening
point = sys.argv.pop(1)
with listening(lambda reached: os.kill(os.getpid(), signal.SIGKILL) if reached == point else None):
    run_program()
"""
WITHOUT = {"do": "shell", "commands": ["git rm -q -f forbidden.txt || rm -f forbidden.txt; printf 'one\\n' > one.txt"]}

Begin = Callable[..., Path]


@pytest.fixture
def begin(stage: Stage, model: Serve) -> Begin:
    """A repository with a run of two commits, `r`, whose workers go on as they are told."""

    def begin(
        *later: Json, limits: tuple[str, ...] = (), code: int = 0, failure_action: str = "replan", **more: Any
    ) -> Path:
        files = {"README.md": "hello\n", "fleet.toml": f"[checks]\ngate = '{GATE}'\n"}
        repository = make_repository(stage.room / "work", files)
        plan = (subtask("one", touches=["*.txt"], failure_action=failure_action), subtask("two", "one"))
        url = model(script(*plan, workers={"one": [solve("one"), *later]}, **more))
        stage.fleet("run", "Write", "--name", "r", "--base-url", url, "--yes", *limits, at=repository).ended(code)
        return repository

    return begin


def commit(repository: Path, name: str, content: str) -> str:
    (repository / name).write_text(content, encoding="utf-8")
    git(repository, "add", "-A")
    git(repository, "commit", "--quiet", "-m", f"Mine: {name}")
    return git(repository, "rev-parse", "HEAD")


def subjects(repository: Path, *which: str) -> list[str]:
    return git(repository, "log", "--reverse", "--format=%s", *which).splitlines()


def test_a_conflict_is_resolved_by_a_worker_and_the_branch_gets_what_is_green(stage: Stage, begin: Begin) -> None:
    repository = begin(MERGED)
    moved = commit(repository, "one.txt", "something else\n")
    done = stage.fleet("merge", at=repository).ended(0)
    done.says("landing 2 commits again on top of it, in r-on-main", "2 commits of r, each tested")
    done.says(f"git show {git(repository, 'rev-parse', 'main~1')[:12]} (one: conflicts with main: one.txt)")
    assert subjects(repository, f"{moved}..main") == ["Write one", "Write two"]
    assert git(repository, "show", "main~1:one.txt") == "something else\none"
    assert git(repository, "status", "--porcelain") == ""
    state = stage.folder("r-on-main").state()
    [first, second] = subtask_of(state, "one").attempts
    assert (first.failure and first.failure.kind, second.strategy) == ("conflict", "resolve")
    assert (len(subtask_of(state, "two").attempts), set(state.spend)) == (1, {"resolver"})
    stage.fleet("merge", at=repository).ended(0).says("already contains all commits of r")
    stage.nothing_runs("r-on-main")
    stage.fleet("audit", "r-on-main", at=repository).ended(0)
    stage.fleet("clean", "--branches", "--runs", "--apply", at=repository).ended(0).says("deleted")
    assert git(repository, "for-each-ref", "refs/heads/fleet", "refs/fleet") == ""


@pytest.mark.thorough
def test_what_is_red_on_the_branch_goes_to_a_worker_too(stage: Stage, begin: Begin) -> None:
    repository = begin(WITHOUT)
    moved = commit(repository, "forbidden.txt", "x\n")
    merged = (
        stage.fleet("merge", "--json", at=repository)
        .ended(0)
        .says("one fails after the merge: retrying on the new base")
    )
    done = merged.json
    assert (done["how"], done["commits"], done["relanding"]) == ("relanded", 2, "r-on-main")
    assert [(each["subtask"], "breaks" in each["why"]) for each in done["redone"]] == [("one", True)]
    assert done["redone"][0]["commit"] == git(repository, "rev-parse", "main~1")
    assert subjects(repository, f"{moved}..main") == ["Write one", "Write two"]
    assert git(repository, "ls-tree", "--name-only", "main~1") == "README.md\nfleet.toml\none.txt"


@pytest.mark.thorough
def test_a_resolver_that_fails_leaves_everything_and_a_person_can_help(stage: Stage, begin: Begin) -> None:
    gives_up = {"do": "fail", "message": "Which line is right?"}
    repository = begin(gives_up, MERGED, failure_action="ask")
    commit(repository, "one.txt", "something else\n")
    with untouched(repository):
        failed = stage.fleet("merge", at=repository).ended(1)
        failed.says("main is unchanged: commit 1 of 2, Write one (one), conflicts with it: one.txt")
        failed.says(
            "1 more attempt failed, the last with: Write one: not done",
            "fleet retry one --run r-on-main -g GUIDANCE",
            "git merge fleet/r",
        )
        again = stage.fleet("merge", "--json", at=repository).ended(1)
        assert (again.json["error"]["code"], "one.txt" in again.json["error"]["message"]) == ("not_merged", True)
    assert len(subtask_of(stage.folder("r-on-main").state(), "one").attempts) == 2, "nothing is paid for twice"
    stage.fleet("retry", "one", "-g", "keep both lines", at=repository).ended(0)
    stage.fleet("merge", at=repository).ended(0).says("changed by a resolver, please review")
    assert git(repository, "show", "main~1:one.txt") == "something else\none"


@pytest.mark.thorough
def test_what_may_not_be_spent_is_not_spent(stage: Stage, begin: Begin) -> None:
    repository = begin(MERGED, limits=("--attempts", "2"), code=4)
    commit(repository, "one.txt", "something else\n")
    with untouched(repository):
        stage.fleet("merge", at=repository).ended(1).says("the budget of r (2 attempts) is used up", "--budget USD")
        elsewhere = ("--base-url", "https://api.anthropic.com")
        stage.without(KEY_NAME).fleet("merge", *elsewhere, at=repository).ended(1).says("resolvers need an API key")
    assert stage.runs == ["r"]
    stage.fleet("merge", "--budget", "1", at=repository).ended(0)
    assert stage.folder("r-on-main").state().policy.budget_dollars == 1


@pytest.mark.thorough
def test_work_that_was_done_for_one_commit_serves_for_the_next(stage: Stage, begin: Begin) -> None:
    """The branch moves on while a worker resolves; then the result gets a commit that a person made."""
    repository = begin({"do": "hang", "seconds": 4, "pings": True, "then": MERGED})
    commit(repository, "one.txt", "something else\n")
    with stage.going("merge", at=repository) as going:
        stage.wait("r-on-main", lambda state: len(subtask_of(state, "one").attempts) == 2, going)
        moved = commit(repository, "three.txt", "three\n")
        done = going.done().ended(0)
    done.says("main moved during the merge", "in r-on-main-2")
    assert subjects(repository, f"{moved}..main") == ["Write one", "Write two"]
    assert stage.folder("r-on-main-2").state().spent.calls == 0
    git(repository, "checkout", "--quiet", "fleet/r")
    commit(repository, "four.txt", "four\n")
    git(repository, "checkout", "--quiet", "main")
    stage.fleet("merge", "r", at=repository).ended(0).says("1 commit of r, each tested")
    assert subjects(repository, f"{moved}..main") == ["Write one", "Write two", "Mine: four.txt"]
    assert stage.runs == ["r", "r-on-main", "r-on-main-2", "r-on-main-3"]


def test_a_red_branch_is_called_that_and_nothing_is_spent(stage: Stage, begin: Begin) -> None:
    repository = begin(MERGED)
    commit(repository, "forbidden.txt", "x\n")
    commit(repository, "one.txt", "something else\n")
    with untouched(repository):
        stage.fleet("merge", at=repository).ended(1).says("the gate fails on main itself", GATE)
    assert stage.folder("r-on-main").state().spent.calls == 0


@pytest.mark.parametrize("steps", [STEPS[-2:], pytest.param(STEPS, marks=pytest.mark.thorough)], ids=("last", "all"))
def test_a_kill_at_any_step_leaves_the_branch_whole_and_the_same_command_completes(
    stage: Stage, begin: Begin, steps: tuple[str, ...]
) -> None:
    repository = begin(MERGED)
    before = commit(repository, "one.txt", "something else\n")
    for point in steps:
        killed = stage.run([sys.executable, "-c", KILLED_AT, point, "merge", "r"], at=repository)
        assert killed.code == -signal.SIGKILL, (point, killed)
        assert subjects(repository, f"{before}..main") == ([] if point != STEPS[-1] else ["Write one", "Write two"])
    stage.fleet("merge", "r", at=repository).ended(0).says("already contains all commits of r")
    assert git(repository, "status", "--porcelain") == git(repository, "for-each-ref", "refs/fleet") == ""
    assert git(repository, "show", "main~1:one.txt") == "something else\none"
    assert {name: len(subtask_of(stage.folder(name).state(), "one").attempts) for name in stage.runs[2:]} == {}
    stage.fleet("audit", "r-on-main", at=repository).ended(0)
    stage.nothing_runs("r-on-main")


@pytest.mark.thorough
def test_resolved_commits_are_signed_by_who_takes_them_and_have_the_author_of_the_run(
    stage: Stage, begin: Begin
) -> None:
    repository = begin(MERGED)
    moved = commit(repository, "one.txt", "something else\n")
    key, signers = stage.room / "key", stage.room / "signers"
    stage.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ada", "-f", str(key)]).ended(0)
    signers.write_text(f"ada@example.org {key.with_suffix('.pub').read_text(encoding='utf-8')}", encoding="utf-8")
    missing = stage.with_(FLEET_GIT_SIGN="ssh", FLEET_GIT_SIGNING_KEY=str(stage.room / "no-key"))
    ada = {"FLEET_GIT_TAKER": "Ada <ada@example.org>", "FLEET_GIT_SIGN_OFF": "true", "FLEET_GIT_NAME": "Robot"}
    with untouched(repository):
        missing.with_(**ada).fleet("merge", at=repository).ended(3).says("no-key")
    stage.with_(**ada, FLEET_GIT_SIGN="ssh", FLEET_GIT_SIGNING_KEY=str(key)).fleet("merge", at=repository).ended(0)
    shown = git(
        *(repository, "-c", "gpg.format=ssh", "-c", f"gpg.ssh.allowedSignersFile={signers}", "log", "--reverse"),
        *("--format=%G? %an, %cn, %(trailers:key=Signed-off-by,valueonly,separator=;)", f"{moved}..main"),
    )
    signed = "Ada, Ada <ada@example.org>"
    assert shown.splitlines() == [f"G Robot, {signed}", f"G fleet coder (claude-haiku-5-5), {signed}"]
    assert len(stage.runs) == 2, "the resolved work serves for both calls"
