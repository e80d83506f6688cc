"""Which commits are the fleet's, read from real repositories, also from such as lie."""

import os
import subprocess
from pathlib import Path

import pytest

from dashboards.commits import commits_lines
from fleet.core.attribution import Account, account_view
from fleet.errors import UsageError
from fleet.ports import Signature
from tests.worktrees.conftest import git, make_repository
from worktrees.ledger import attributed
from worktrees.message import author_of, compose

DAY = 86_400
MONDAY = 1_793_577_600  # 2026-11-02, in the 45th week


def commit(at: Path, message: str, *, when: int = MONDAY, author: str = "Ada") -> str:
    env = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{who}_NAME": author for who in ("AUTHOR", "COMMITTER")},
        **{f"GIT_{who}_EMAIL": "a@example.org" for who in ("AUTHOR", "COMMITTER")},
        **{f"GIT_{who}_DATE": f"{when} +0000" for who in ("AUTHOR", "COMMITTER")},
    }
    command = ["git", "commit", "--quiet", "--allow-empty", "--cleanup=verbatim", "-F", "-"]
    subprocess.run(command, cwd=at, env=env, input=message.encode(), check=True)
    return git(at, "rev-parse", "HEAD")


def work(at: Path, task: str, *, when: int = MONDAY, worker: str = "coder", model: str | None = "haiku") -> str:
    """A commit as the fleet makes it."""
    signature = Signature(run="r1", subtask=task, attempt=1, title=f"Write {task}", body="", worker=worker, model=model)
    return commit(at, compose(signature), when=when, author=author_of(signature, "f@localhost").name)


def revert(at: Path, sha: str, *, when: int = MONDAY + DAY) -> str:
    return commit(at, f'Revert "it"\n\nThis reverts commit {sha}.\n', when=when)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "work")


async def tell(repository: Path, since: float | None = None) -> Account:
    return await attributed(repository, since=since)


async def test_commits_are_counted_by_week_model_and_worker(repository: Path) -> None:
    work(repository, "a")
    work(repository, "b", worker="documenter")
    work(repository, "c", when=MONDAY + 7 * DAY, model="sonnet")
    work(repository, "d", when=MONDAY + 7 * DAY, model=None)
    commit(repository, "By hand\n")
    view = account_view(await tell(repository))
    assert (view["commits"], view["all_commits"], view["runs"]) == (4, 6, 1)
    assert view["weeks"] == [
        {
            "week": "2026-W45",
            "commits": 2,
            "reverted": 0,
            "by": [
                {"model": "haiku", "worker": "coder", "commits": 1, "reverted": 0},
                {"model": "haiku", "worker": "documenter", "commits": 1, "reverted": 0},
            ],
        },
        {
            "week": "2026-W46",
            "commits": 2,
            "reverted": 0,
            "by": [
                {"model": "sonnet", "worker": "coder", "commits": 1, "reverted": 0},
                {"model": "unknown", "worker": "coder", "commits": 1, "reverted": 0},
            ],
        },
    ]


async def test_what_is_older_is_left_out(repository: Path) -> None:
    work(repository, "a")
    work(repository, "b", when=MONDAY + 9 * DAY)
    told = await tell(repository, since=MONDAY + 5 * DAY)
    assert [one.subtask for one in told.commits] == ["b"]


async def test_what_was_reverted_is_told_and_what_was_put_back_is_not(repository: Path) -> None:
    gone, back = work(repository, "gone"), work(repository, "back")
    revert(repository, gone)
    revert(repository, revert(repository, back), when=MONDAY + 2 * DAY)
    told = await tell(repository)
    assert told.reverted == {gone}
    view = account_view(told)
    assert (view["reverted"], view["reverted_share"]) == (1, 0.5)
    assert "reverted later: 50% (1 of 2)" in commits_lines(view)[-1]


async def test_a_merge_that_is_reverted_takes_back_what_it_brought(repository: Path) -> None:
    kept = work(repository, "kept")
    git(repository, "checkout", "--quiet", "-b", "fleet/r1")
    brought = {work(repository, "a"), work(repository, "b")}
    git(repository, "checkout", "--quiet", "main")
    commit(repository, "By hand\n")
    git(repository, "merge", "--quiet", "--no-ff", "-m", "Merge", "fleet/r1")
    revert(repository, git(repository, "rev-parse", "HEAD"))
    told = await tell(repository)
    assert told.reverted == brought
    assert kept in {one.commit for one in told.commits}


async def test_a_commit_that_was_picked_counts_once_and_another_run_of_that_name_again(repository: Path) -> None:
    git(repository, "checkout", "--quiet", "-b", "fleet/r1")
    (repository / "a.txt").write_text("a\n", encoding="utf-8")
    git(repository, "add", "a.txt")
    first = work(repository, "a")
    git(repository, "checkout", "--quiet", "main")
    commit(repository, "By hand\n")
    git(repository, "cherry-pick", first)
    work(repository, "a", when=MONDAY + DAY)
    told = await tell(repository)
    assert [one.commit for one in told.commits if one.at == MONDAY] == [first]
    assert len(told.commits) == 2


async def test_commits_from_before_the_trailer_name_their_worker_in_the_author(repository: Path) -> None:
    commit(repository, "Write\n\nFleet-Run: r1\nFleet-Task: a\nFleet-Attempt: 1\n", author="fleet coder (haiku)")
    (one,) = (await tell(repository)).commits
    assert (one.worker, one.model) == ("coder", "unknown")


@pytest.mark.parametrize(
    "message",
    [
        "Tell of it\n\nFleet-Run: r1\nFleet-Task: a\nFleet-Attempt: 1\n\nthat was the trailer, and this is the end.\n",
        "No attempt\n\nFleet-Run: r1\nFleet-Task: a\n",
        "A path\n\nFleet-Run: r1\nFleet-Task: ../../etc\nFleet-Attempt: 1\n",
        "A number\n\nFleet-Run: r1\nFleet-Task: a\nFleet-Attempt: 99999999999999999999\n",
        "An option\n\nFleet-Run: --exec=x\nFleet-Task: a\nFleet-Attempt: 1\n",
    ],
)
async def test_what_only_looks_like_the_fleets_is_not(repository: Path, message: str) -> None:
    commit(repository, message)
    assert (await tell(repository)).commits == ()


async def test_hostile_trailers_are_short_and_plain_where_they_are_shown(repository: Path) -> None:
    model = "haiku\x1b]52;c;eA==\x07 [@click=app.bell]x[/] \u202e" + "m" * 5000
    trailers = f"Fleet-Run: r1\nFleet-Task: a\nFleet-Attempt: 1\nFleet-Worker: a b\x1b[2J\nAssisted-by: {model}\n"
    commit(repository, f"Write\n\n{trailers}", author="fleet \x1b[31m (x)")
    told = await tell(repository)
    (one,) = told.commits
    assert one.worker == "unknown"
    assert len(one.model) <= 100
    lines = commits_lines(account_view(told))
    assert all(line.isprintable() for line in lines)
    assert all(len(line) < 120 for line in lines)


async def test_a_revert_may_name_anything(repository: Path) -> None:
    own = work(repository, "a")
    names = "\n".join(f"This reverts commit {number:040x}." for number in range(3000))
    commit(repository, f"Revert much\n\n{names}\n")
    commit(repository, f"Revert\n\nThis reverts commit {own[:12]}.\nThis reverts commit --output=x.\n")
    assert (await tell(repository)).reverted == frozenset()


async def test_settings_of_the_repository_run_nothing(repository: Path, tmp_path: Path) -> None:
    work(repository, "a")
    marker = tmp_path / "ran"
    evil = tmp_path / "evil"
    evil.write_text(f"#!/bin/sh\n: >{marker}\nexit 1\n", encoding="utf-8")
    evil.chmod(0o755)
    for key, value in {
        "gpg.program": str(evil),
        "log.showSignature": "true",
        "core.pager": str(evil),
        "pager.log": "true",
        "core.fsmonitor": str(evil),
        "grep.patternType": "fixed",
        "i18n.logOutputEncoding": "UTF-16",
        "color.ui": "always",
    }.items():
        git(repository, "config", key, value)
    assert len((await tell(repository)).commits) == 1
    assert not marker.exists()


async def test_an_empty_a_bare_and_a_shallow_repository_are_repositories(repository: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    git(tmp_path, "init", "--quiet", str(empty))
    assert (await tell(empty)).commits == ()
    assert commits_lines(account_view(await tell(empty))) == [
        "none of 0 commits says that it is the fleet's (the trailer Fleet-Run)"
    ]
    work(repository, "a")
    for name, option in (("bare", "--bare"), ("shallow", "--depth=1")):
        git(tmp_path, "clone", "--quiet", option, f"file://{repository}", str(tmp_path / name))
        assert len((await tell(tmp_path / name)).commits) == 1
    with pytest.raises(UsageError, match="not a git repository"):
        await tell(tmp_path)
