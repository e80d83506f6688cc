"""The fleet's commits, read from real repositories, also where trailers are forged."""

import os
import subprocess
from pathlib import Path

import pytest

from fleet.core.base.ids import Sha, SubtaskId
from fleet.errors import UsageError
from fleet.features.audit.attribution import FleetCommits, commits_lines, commits_view, read_attribution
from fleet.ports.worktrees import Signature
from fleet.read.base_view import dump_view
from tests.worktrees.conftest import RUN, git, make_repository, sha_at
from worktrees.git.object_format import author_of, compose

DAY = 86_400
MONDAY = 1_793_577_600  # 2026-11-02, in the 45th week


def commit(at: Path, message: str, *, when: int = MONDAY, author: str = "Ada") -> Sha:
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
    return sha_at(at)


def work(at: Path, task: str, *, when: int = MONDAY, worker: str = "coder", model: str | None = "haiku") -> Sha:
    """A commit as the fleet makes it."""
    signature = Signature(
        run=RUN, subtask=SubtaskId(task), attempt=1, title=f"Write {task}", body="", worker=worker, model=model
    )
    return commit(at, compose(signature), when=when, author=author_of(signature, "", "f@localhost").name)


def revert(at: Path, sha: Sha, *, when: int = MONDAY + DAY) -> Sha:
    return commit(at, f'Revert "it"\n\nThis reverts commit {sha}.\n', when=when)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "work")


async def account_of(repository: Path, since: float | None = None) -> FleetCommits:
    return await read_attribution(repository, since=since)


async def test_commits_are_counted_by_week_model_and_worker(repository: Path) -> None:
    work(repository, "a")
    work(repository, "b", worker="documenter")
    work(repository, "c", when=MONDAY + 7 * DAY, model="sonnet")
    work(repository, "d", when=MONDAY + 7 * DAY, model=None)
    commit(repository, "By hand\n")
    view = dump_view(commits_view(await account_of(repository)))
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
    account = await account_of(repository, since=MONDAY + 5 * DAY)
    assert [commit.subtask for commit in account.commits] == ["b"]


async def test_what_was_reverted_is_listed_and_what_was_put_back_is_not(repository: Path) -> None:
    reverted, back = work(repository, "gone"), work(repository, "back")
    revert(repository, reverted)
    revert(repository, revert(repository, back), when=MONDAY + 2 * DAY)
    account = await account_of(repository)
    assert account.reverted == {reverted}
    view = dump_view(commits_view(account))
    assert (view["reverted"], view["reverted_share"]) == (1, 0.5)
    assert "reverted later: 50% (1 of 2)" in commits_lines(commits_view(account))[-1]


async def test_a_merge_that_is_reverted_takes_back_what_it_brought(repository: Path) -> None:
    untouched = work(repository, "kept")
    git(repository, "checkout", "--quiet", "-b", "fleet/r1")
    brought = {work(repository, "a"), work(repository, "b")}
    git(repository, "checkout", "--quiet", "main")
    commit(repository, "By hand\n")
    git(repository, "merge", "--quiet", "--no-ff", "-m", "Merge", "fleet/r1")
    revert(repository, sha_at(repository))
    account = await account_of(repository)
    assert account.reverted == brought
    assert untouched in {each.commit for each in account.commits}


async def test_a_commit_that_was_picked_counts_once_and_another_run_of_that_name_again(repository: Path) -> None:
    git(repository, "checkout", "--quiet", "-b", "fleet/r1")
    (repository / "a.txt").write_text("a\n", encoding="utf-8")
    git(repository, "add", "a.txt")
    first = work(repository, "a")
    git(repository, "checkout", "--quiet", "main")
    commit(repository, "By hand\n")
    git(repository, "cherry-pick", first)
    work(repository, "a", when=MONDAY + DAY)
    account = await account_of(repository)
    assert [each.commit for each in account.commits if each.at == MONDAY] == [first]
    assert len(account.commits) == 2


async def test_commits_from_before_the_trailer_name_their_worker_in_the_author(repository: Path) -> None:
    commit(repository, "Write\n\nFleet-Run: r1\nFleet-Task: a\nFleet-Attempt: 1\n", author="fleet coder (haiku)")
    (attributed,) = (await account_of(repository)).commits
    assert (attributed.worker, attributed.model) == ("coder", "unknown")


@pytest.mark.parametrize(
    "message",
    [
        "Mention it\n\nFleet-Run: r1\nFleet-Task: a\nFleet-Attempt: 1\n\nthat was the trailer, and this is the end.\n",
        "No attempt\n\nFleet-Run: r1\nFleet-Task: a\n",
        "A path\n\nFleet-Run: r1\nFleet-Task: ../../etc\nFleet-Attempt: 1\n",
        "A number\n\nFleet-Run: r1\nFleet-Task: a\nFleet-Attempt: 99999999999999999999\n",
        "An option\n\nFleet-Run: --exec=x\nFleet-Task: a\nFleet-Attempt: 1\n",
    ],
)
async def test_what_only_looks_like_the_fleets_is_not(repository: Path, message: str) -> None:
    commit(repository, message)
    assert (await account_of(repository)).commits == ()


async def test_hostile_trailers_are_short_and_plain_where_they_are_shown(repository: Path) -> None:
    model = "haiku\x1b]52;c;eA==\x07 [@click=app.bell]x[/] \u202e" + "m" * 5000
    trailers = f"Fleet-Run: r1\nFleet-Task: a\nFleet-Attempt: 1\nFleet-Worker: a b\x1b[2J\nAssisted-by: {model}\n"
    commit(repository, f"Write\n\n{trailers}", author="fleet \x1b[31m (x)")
    account = await account_of(repository)
    (attributed,) = account.commits
    assert attributed.worker == "unknown"
    assert len(attributed.model) <= 100
    lines = commits_lines(commits_view(account))
    assert all(line.isprintable() for line in lines)
    assert all(len(line) < 120 for line in lines)


async def test_a_revert_may_name_anything(repository: Path) -> None:
    ours = work(repository, "a")
    names = "\n".join(f"This reverts commit {number:040x}." for number in range(3000))
    commit(repository, f"Revert much\n\n{names}\n")
    commit(repository, f"Revert\n\nThis reverts commit {ours[:12]}.\nThis reverts commit --output=x.\n")
    assert (await account_of(repository)).reverted == frozenset()


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
    assert len((await account_of(repository)).commits) == 1
    assert not marker.exists()


async def test_an_empty_a_bare_and_a_shallow_repository_are_repositories(repository: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    git(tmp_path, "init", "--quiet", str(empty))
    assert (await account_of(empty)).commits == ()
    assert commits_lines(commits_view(await account_of(empty))) == [
        "no commit by fleet found (0 commits without the trailer Fleet-Run)"
    ]
    work(repository, "a")
    for name, option in (("bare", "--bare"), ("shallow", "--depth=1")):
        git(tmp_path, "clone", "--quiet", option, f"file://{repository}", str(tmp_path / name))
        assert len((await account_of(tmp_path / name)).commits) == 1
    with pytest.raises(UsageError, match="not a git repository"):
        await account_of(tmp_path)
