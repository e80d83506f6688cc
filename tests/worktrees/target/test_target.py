"""What is said of a repository before a run."""

from pathlib import Path

import pytest

from fleet.errors import UsageError
from tests.worktrees.conftest import RUN, OpenBench, git, make_repository
from worktrees.target.target import inspect


async def test_a_clean_checkout_needs_no_warning(repository: Path) -> None:
    target = await inspect(repository / "src")
    assert target.root == repository
    assert target.git_dir == repository / ".git"
    assert (target.base, target.base_name) == (git(repository, "rev-parse", "HEAD"), "main")
    assert target.warnings == ()


async def test_a_dirty_checkout_runs_on_head_and_says_so(repository: Path) -> None:
    (repository / "README.md").write_text("edited\n", encoding="utf-8")
    (repository / "new.txt").write_text("new\n", encoding="utf-8")
    index = (repository / ".git" / "index").read_bytes()
    target = await inspect(repository)
    assert target.warnings == (f"starts from HEAD {target.base[:7]}, without the uncommitted changes in 2 files",)
    assert (repository / ".git" / "index").read_bytes() == index


async def test_a_base_can_be_named_and_a_wrong_one_gets_the_nearest(repository: Path) -> None:
    git(repository, "branch", "feature/tokens")
    assert (await inspect(repository, "feature/tokens")).base_name == "feature/tokens"
    with pytest.raises(UsageError, match="did you mean 'feature/tokens'"):
        await inspect(repository, "feature/token")
    with pytest.raises(UsageError, match="no commit, branch or tag '--help'"):
        await inspect(repository, "--help")


async def test_what_is_no_repository_gets_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        await inspect(tmp_path / "gone")
    with pytest.raises(UsageError, match="git init"):
        await inspect(tmp_path)
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(UsageError, match="is not a folder"):
        await inspect(tmp_path / "file")
    git(tmp_path, "init", "--quiet", "empty")
    with pytest.raises(UsageError, match=r"no commits in .* yet"):
        await inspect(tmp_path / "empty")


async def test_submodules_and_large_files_are_warned_of(tmp_path: Path) -> None:
    files = {".gitmodules": '[submodule "x"]\n', ".gitattributes": "*.bin filter=lfs diff=lfs\n"}
    repository = make_repository(tmp_path / "odd", files)
    warnings = " ".join((await inspect(repository)).warnings)
    assert "fleet does not fetch submodules" in warnings
    assert "pointers" in warnings


async def test_the_users_environment_does_not_lead_astray(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_repository(tmp_path / "other", {"x": "x\n"})
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    target = await inspect(repository)
    assert target.base == git(repository, "rev-parse", "HEAD")
    with pytest.raises(UsageError, match="no commit"):
        await inspect(repository, "nowhere")


@pytest.mark.parametrize("kind", ["bare", "shallow", "linked", "unicode"])
async def test_an_unusual_repository_works_all_the_way(
    kind: str, repository: Path, tmp_path: Path, open_bench: OpenBench
) -> None:
    (repository / "src" / "one.py").write_text("ONE = 11\n", encoding="utf-8")
    git(repository, "commit", "-qam", "second")
    at = tmp_path / kind
    match kind:
        case "bare":
            git(tmp_path, "clone", "--quiet", "--bare", str(repository), str(at))
        case "shallow":
            git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{repository}", str(at))
        case "linked":
            git(repository, "worktree", "add", "--quiet", str(at))
        case _:
            at = make_repository(tmp_path / "ein Wörk tree 'mit' $x", {"größe.txt": "groß\n"})
    async with open_bench(at) as bench:
        assert bench.target.bare is (kind == "bare")
        assert ("shallow clone" in " ".join(bench.target.warnings)) is (kind == "shallow")
        member = await bench.change("one", {"neü file.txt": "hello\n"})
        merged = await bench.worktrees.integrator.merge(bench.base, [member])
        assert await bench.worktrees.publisher.publish(RUN, tip=merged.tip) is None
        assert git(at, "show", "fleet/r1:neü file.txt") == "hello"


async def test_a_repository_on_another_drive_is_copied(
    repository: Path, other_drive: Path, open_bench: OpenBench
) -> None:
    async with open_bench(state_dir=other_drive) as bench:
        member = await bench.change("one", {"a.txt": "a\n"})
        assert await bench.worktrees.publisher.publish(RUN, tip=member.commit) is None
    assert git(repository, "show", "fleet/r1:a.txt") == "a"


async def test_a_later_run_fetches_what_the_store_does_not_have(repository: Path, open_bench: OpenBench) -> None:
    async with open_bench():
        pass
    git(repository, "checkout", "--quiet", "--detach")
    (repository / "later.txt").write_text("later\n", encoding="utf-8")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "on no branch")
    async with open_bench() as bench:
        assert "later.txt" in await bench.worktrees.at(bench.base).list_files()
        refs = (await bench.worktrees.store.git("for-each-ref", "--format=%(refname)")).decode().split()
        assert all(ref.startswith("refs/fleet/") for ref in refs)
    assert "refs/fleet" not in git(repository, "for-each-ref")
