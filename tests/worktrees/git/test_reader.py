"""What GitPython reads of a repository, with ids of both kinds."""

from functools import partial
from pathlib import Path

import pytest

from fleet.core.base.ids import Sha
from fleet.ports.worktrees import EffectError
from tests.worktrees.conftest import git, sha_at
from worktrees.git import reader
from worktrees.git.object_format import object_id, parse_commit, parse_signature
from worktrees.git.program import Git
from worktrees.git.reader import read


def at(repository: Path) -> Git:
    return Git(repository / ".git")


@pytest.fixture(params=["sha1", "sha256"])
def repository(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet", f"--object-format={request.param}")
    (tmp_path / "a b").write_text("a\n" * 10, encoding="utf-8")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/é").write_text("é", encoding="utf-8")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "--quiet", "-m", "start\n\nFleet-Run: r1")
    git(tmp_path, "tag", "v1")
    git(tmp_path, "checkout", "--quiet", "-b", "side")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "-m", "side")
    git(tmp_path, "checkout", "--quiet", "main")
    git(tmp_path, "merge", "--quiet", "--no-ff", "-m", "merge", "side")
    return tmp_path


async def test_branches_tags_and_the_one_that_is_checked_out(repository: Path) -> None:
    assert await read(at(repository), reader.branches) == ("main", "side")
    assert await read(at(repository), reader.branches_and_tags) == ("main", "side", "v1")
    assert await read(at(repository), reader.branch_of_head) == "main"
    git(repository, "checkout", "--quiet", "--detach")
    assert await read(at(repository), reader.branch_of_head) is None


async def test_files_of_a_commit(repository: Path) -> None:
    commit = sha_at(repository)
    file_at = partial(reader.file_at, commit=commit, most=4)
    assert await read(at(repository), partial(file_at, path="a b")) == (b"a\na\n", 20)
    assert await read(at(repository), partial(file_at, path="folder/é")) == ("é".encode(), 2)
    assert await read(at(repository), partial(file_at, path="folder")) == "tree"
    assert await read(at(repository), partial(file_at, path="x blob 5")) is None
    wanted = ("a b", "folder", "none")
    assert await read(at(repository), partial(reader.files_at, commit=commit, paths=wanted, most=2)) == {"a b": b"a\n"}


async def test_history_is_a_line_for_each_commit(repository: Path) -> None:
    ids = git(repository, "log", "--format=%h", "--abbrev=10").split()
    history = partial(reader.history, commit=sha_at(repository), path=None, limit=2)
    assert [line.split(" ")[0] for line in (await read(at(repository), history)).splitlines()] == ids[:2]
    about = partial(reader.history, commit=sha_at(repository), path="a b", limit=9)
    assert (await read(at(repository), about)).splitlines()[0].endswith("Ada: start")


async def test_commits_are_read_as_they_are_stored(repository: Path) -> None:
    tip, side, start = map(Sha, git(repository, "log", "--topo-order", "--format=%H").split())
    between = await read(at(repository), partial(reader.commits_between, base=start, tip=tip))
    assert [id_ for id_, _ in between] == [side, tip]
    assert all(object_id("commit", content, digits=len(id_)) == id_ for id_, content in between)
    assert parse_signature(parse_commit(between[0][1]).author)[0] == "Ada"
    [(found, _)] = await read(at(repository), partial(reader.matching_commits, pattern="^Fleet-Run: ", since=None))
    assert found == start
    assert await read(at(repository), partial(reader.matching_commits, pattern="^Fleet-Run: ", since=4e9)) == []


async def test_a_detached_commit_counts_and_merges_say_what_they_brought(repository: Path) -> None:
    _, side, _ = map(Sha, git(repository, "log", "--topo-order", "--format=%H").split())
    git(repository, "checkout", "--quiet", "--detach")
    git(repository, "commit", "--quiet", "--allow-empty", "-m", "detached")
    assert await read(at(repository), partial(reader.count_commits, since=None)) == 4
    merge = sha_at(repository, "main")
    merges = await read(at(repository), partial(reader.merges_with, named={merge, side}))
    assert merges == {merge: frozenset({side, merge})}


async def test_what_is_not_a_repository_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EffectError, match="can't read"):
        await read(Git(tmp_path), reader.branches)
