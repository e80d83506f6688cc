"""Moving a branch of the user's: with its checkout, whatever happens in between, and never over anything of theirs."""

import pytest

from fleet.core.base.ids import Sha
from fleet.errors import FleetError, UsageError
from fleet.runs.crash_points import listening
from tests.worktrees.conftest import RUN, Bench, git, sha_at
from worktrees.target.checkout import find_checkout, refuse_unfit
from worktrees.target.publish import commit_of, move_branch

POINTS = (
    "a result is in the user's repository, and no branch names it",
    "a checkout has the files of a result, and its index does not",
    "a checkout is at a result, and its branch is not",
    "a branch of the user's is at a result",
)
FILES = {"a.txt": "a\n", "deep/b.txt": "b\n", "src/one.py": "ONE = 2\n"}


class KilledError(Exception):
    """What stands for a kill: nothing of ours catches it."""


async def move(bench: Bench, new: Sha, branch: str = "main") -> None:
    old = await commit_of(bench.target, branch)
    await move_branch(bench.worktrees.store.git, bench.target, RUN, branch, new=new, old=old)


def is_at(bench: Bench, commit: Sha) -> bool:
    """Whether branch, index and files are all at a commit, and nothing is left behind."""
    left = git(bench.repository, "for-each-ref", "refs/fleet")
    return (git(bench.repository, "rev-parse", "main"), git(bench.repository, "status", "--porcelain"), left) == (
        *(commit, ""),
        "",
    )


async def test_branch_index_and_files_move_together(bench: Bench) -> None:
    member = await bench.change("one", FILES)
    head = git(bench.repository, "symbolic-ref", "HEAD")
    await move(bench, member.commit)
    assert is_at(bench, member.commit)
    assert (bench.repository / "deep/b.txt").read_text(encoding="utf-8") == "b\n"
    assert git(bench.repository, "symbolic-ref", "HEAD") == head
    assert git(bench.repository, "reflog", "-1", "--format=%gs") == f"fleet merge {RUN}"


@pytest.mark.parametrize("point", POINTS)
async def test_what_was_interrupted_is_as_before_or_complete_and_the_same_call_completes_it(
    bench: Bench, point: str
) -> None:
    member = await bench.change("one", FILES)
    before = git(bench.repository, "rev-parse", "main")

    def kill(reached: str) -> None:
        if reached == point:
            raise KilledError

    with listening(kill), pytest.raises(KilledError):
        await move(bench, member.commit)
    assert git(bench.repository, "rev-parse", "main") in {before, member.commit}
    assert not (bench.repository / ".git" / "index.lock").exists()
    if git(bench.repository, "rev-parse", "main") == before:
        await move(bench, member.commit)
    assert is_at(bench, member.commit)


async def test_a_branch_that_moves_meanwhile_is_left_where_it_went(bench: Bench) -> None:
    member = await bench.change("one", FILES)
    git(bench.repository, "branch", "aside")
    git(bench.repository, "checkout", "--quiet", "aside")
    git(bench.repository, "commit", "--quiet", "--allow-empty", "-m", "theirs")
    theirs = sha_at(bench.repository, "aside")
    git(bench.repository, "checkout", "--quiet", "main")

    def step_in(reached: str) -> None:
        if reached == POINTS[2]:
            git(bench.repository, "update-ref", "refs/heads/main", theirs)

    with listening(step_in), pytest.raises(FleetError, match="moved in the meantime"):
        await move(bench, member.commit)
    assert is_at(bench, theirs)


async def test_a_git_that_works_in_the_checkout_is_not_disturbed(bench: Bench) -> None:
    member = await bench.change("one", FILES)
    lock = bench.repository / ".git" / "index.lock"
    lock.write_bytes(b"")
    with pytest.raises(FleetError, match="another git process is running in"):
        await move(bench, member.commit)
    assert lock.read_bytes() == b""
    lock.unlink()
    assert is_at(bench, bench.base)


@pytest.mark.parametrize("how", ["staged", "changed", "removed"])
async def test_work_of_the_user_is_refused_and_kept(bench: Bench, how: str) -> None:
    member = await bench.change("one", FILES)
    if how == "removed":
        (bench.repository / "README.md").unlink()
    else:
        (bench.repository / "README.md").write_text("mine\n", encoding="utf-8")
    if how == "staged":
        git(bench.repository, "add", "-A")
    status = git(bench.repository, "status", "--porcelain")
    with pytest.raises(UsageError, match=r"uncommitted changes: README\.md; commit or stash"):
        await move(bench, member.commit)
    assert git(bench.repository, "status", "--porcelain") == status
    assert git(bench.repository, "rev-parse", "main") == bench.base


async def test_a_file_that_a_program_would_convert_is_left_to_the_user(bench: Bench) -> None:
    member = await bench.change("one", {"a.flt": "a\n"})
    (bench.repository / ".git/info/attributes").write_text("*.flt filter=lfs\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"a git filter converts these files .*: a\.flt; switch .* --into main"):
        await move(bench, member.commit)
    assert is_at(bench, bench.base)
    git(bench.repository, "checkout", "--quiet", "-b", "elsewhere")
    await move(bench, member.commit)
    assert git(bench.repository, "rev-parse", "main") == member.commit


async def test_a_linked_checkout_is_found_by_its_branch(bench: Bench) -> None:
    linked = bench.repository.parent / "linked"
    git(bench.repository, "worktree", "add", "--quiet", "-b", "side", str(linked))
    member = await bench.change("one", FILES)
    await move(bench, member.commit, "side")
    assert git(linked, "status", "--porcelain") == ""
    assert git(linked, "rev-parse", "HEAD") == member.commit
    checkout = await find_checkout(bench.target, "side")
    assert checkout is not None
    assert await refuse_unfit(checkout, old=member.commit, new=member.commit, branch="side") == ()
    assert await find_checkout(bench.target, "nowhere") is None
    assert is_at(bench, bench.base)
