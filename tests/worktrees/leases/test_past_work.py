"""Workers that do history again see nothing of what came later, however their worktrees are leased."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from fleet.core.base.ids import RunId, Sha, tip_ref
from fleet.core.facts.facts import Member
from fleet.ports.worktrees import Change
from tests.settings import with_values
from tests.worktrees.conftest import RUN, git, sha_at, sign
from worktrees.base.settings import LeaseKind, WorktreeSettings
from worktrees.leases.run_worktrees import PastWork, RunWorktrees, open_worktrees
from worktrees.store.store import open_store
from worktrees.target.target import inspect

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["overlay", "pool"])
def lease_kind(request: pytest.FixtureRequest) -> LeaseKind:
    kind: LeaseKind = request.param
    return kind


@dataclass(frozen=True)
class Line:
    """Four commits, the oldest first."""

    path: Path
    commits: tuple[Sha, ...]


@pytest.fixture
def line(repository: Path) -> Line:
    commits = [sha_at(repository)]
    for number in (1, 2, 3):
        (repository / f"file{number}.txt").write_text(f"content {number}\n", encoding="utf-8")
        git(repository, "add", "--all")
        git(repository, "commit", "--quiet", "--message", f"commit {number}")
        commits.append(sha_at(repository))
    return Line(repository, tuple(commits))


async def opened(line: Line, settings: WorktreeSettings):  # type: ignore[no-untyped-def] # noqa: ANN201 - a block
    head = await inspect(line.path)
    await (await open_store(settings.state_dir, head, head.base)).close()
    target = await inspect(line.path, line.commits[0])
    return open_worktrees(target, settings, RUN, target.base, only_past=True)


async def seen(worktrees: RunWorktrees, commit: Sha) -> str:
    """All objects that a command in the box can name, and the files of the index."""
    look = "git cat-file --batch-all-objects --batch-check; git log --all --format=%H; git ls-files -s; git status"
    async with worktrees.lease(commit) as lease:
        return (await lease.workspace.run(look, timeout_s=60.0)).output


async def test_a_box_has_the_objects_of_its_base_and_of_nothing_later(line: Line, settings: WorktreeSettings) -> None:
    async with await opened(line, settings) as worktrees:
        for number in (2, 0, 3, 1):
            output = await seen(worktrees, line.commits[number])
            assert [commit in output for commit in line.commits] == [at <= number for at in range(4)]
            assert "working tree clean" in output
            for later in range(number + 1, 4):
                assert git(line.path, "rev-parse", f"{line.commits[later]}:file{later}.txt") not in output
                assert f"file{later}.txt" not in output


async def test_results_land_in_a_row_each_with_its_own_tree(line: Line, settings: WorktreeSettings) -> None:
    async with await opened(line, settings) as worktrees:
        base = line.commits[0]
        past = PastWork(
            worktrees, worktrees.integrator, base, frozenset(line.commits[:3]), worktrees.integrator.committer
        )
        members = []
        for number in (2, 1):
            async with past.lease(line.commits[number]) as lease:
                await lease.workspace.write("done.txt", b"done\n")
                change = await lease.commit(sign(f"s{number}"), ())
            assert isinstance(change, Change)
            members.append(Member(subtask=f"s{number}", attempt=1, commit=change.commit))
        merged = await past.merge(base, members)
        assert merged.conflicts == ()
        store = worktrees.store.git_dir
        assert [git(store, "rev-parse", f"{copy.commit}^{{tree}}") for copy in merged.landed] == [
            git(store, "rev-parse", f"{member.commit}^{{tree}}") for member in members
        ]
        assert git(store, "rev-list", "--reverse", f"{base}..{merged.tip}").split() == [m.commit for m in merged.landed]
        assert await past.advance(RUN, new=merged.tip, old=base)
        assert git(store, "rev-parse", tip_ref(RUN)) == merged.tip
        assert [member.subtask for member in await past.landed_since(RUN, base)] == ["s2", "s1"]
        assert "file1.txt" not in await past.at(merged.tip).list_files(), "the planner sees the base"
        assert "file1.txt" in await past.at(line.commits[1]).list_files()
        async with past.lease(merged.landed[0].commit) as lease:
            history = (await lease.workspace.run("git log --format=%H", timeout_s=60.0)).output.split()
        assert history == [members[0].commit, *reversed(line.commits[:3])]


async def test_a_set_up_is_the_one_that_was_made_on_the_base(line: Line, settings: WorktreeSettings) -> None:
    settings = with_values(settings, {"setup": "mkdir -p node_modules && ls > node_modules/files"})
    async with open_worktrees(await inspect(line.path), settings, RunId("other"), line.commits[3]) as worktrees:
        assert "file3.txt" in await listed(worktrees, line.commits[3])
        assert "file3.txt" in await listed(worktrees, line.commits[1]), "runs share what was made"
    async with await opened(line, settings) as worktrees:
        for commit in (line.commits[2], line.commits[0]):
            assert "file" not in await listed(worktrees, commit)


async def listed(worktrees: RunWorktrees, commit: Sha) -> str:
    """What the set-up of a commit made."""
    async with worktrees.lease(commit) as lease:
        return (await lease.workspace.run("cat node_modules/files", timeout_s=60.0)).output
