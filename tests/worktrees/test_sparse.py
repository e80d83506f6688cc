"""Sparse worktrees of the pool: what is there, what is not, and that what is not is never taken for deleted."""

from pathlib import Path

import pytest

from fleet.core.facts import Failure
from fleet.ports import Change
from tests.worktrees.conftest import Bench, OpenBench, git, make_repository
from worktrees.settings import LeaseKind
from worktrees.sparse import cone_of

FILES = {
    "README.md": "hello\n",
    "src/top.py": "0\n",
    "src/auth/one.py": "1\n",
    "src/auth/deep/two.py": "2\n",
    "src/billing/three.py": "3\n",
    "odd [x]*/four.py": "4\n",
    "docs/five.md": "5\n",
    "sub/six": "6\n",
}
ABOUT = ("src/auth/**", "odd [x]*/four.py")
SEEN = ["README.md", "src/auth/deep/two.py", "src/auth/one.py", "src/top.py"]
FIND = "find . -type f -not -path './.git' -printf '%P\\n' | sort"


@pytest.fixture
def lease_kind() -> LeaseKind:
    return "pool"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project", FILES)


async def files(lease: object) -> list[str]:
    return (await lease.desk.run(FIND, timeout_s=60)).output.splitlines()  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize(
    ("patterns", "cone"),
    [
        ((), None),
        (("**",), None),
        (("src/auth/**", "*.md"), None),
        (("README.md",), ("README.md",)),
        (("src",), ("src",)),
        (("./src/auth/",), ("src",)),
        (("src/a*/x", "docs/five.md"), ("docs", "src")),
        (("src/auth/**", "src/auth/deep/two.py", "src/authors/x.py"), ("src/auth", "src/authors")),
        (("src/**", "src/auth/one.py"), ("src",)),
    ],
)
def test_the_cone_holds_whatever_the_patterns_may_match(patterns: tuple[str, ...], cone: object) -> None:
    assert cone_of(patterns) == cone


async def test_a_worktree_holds_what_its_subtask_is_about(open_bench: OpenBench) -> None:
    async with open_bench(sparse=True) as bench:
        for _ in range(2):
            async with bench.hands.lease(bench.base, ("src/auth/**",)) as lease:
                assert await files(lease) == SEEN
                clean = await lease.desk.run("git status --porcelain; git show HEAD:docs/five.md", timeout_s=60)
                assert clean.output == "5\n"
                await lease.desk.run("echo x > src/auth/one.py; mkdir -p docs; echo mine > docs/five.md", timeout_s=60)
            async with bench.hands.lease(bench.base, ("docs/five.md",)) as lease:
                assert await files(lease) == ["README.md", "docs/five.md"]
                assert await lease.desk.read("docs/five.md") == b"5\n"
            async with bench.hands.lease(bench.base) as lease:
                assert await files(lease) == sorted(FILES)


async def test_a_name_that_is_a_pattern_is_taken_as_it_is(open_bench: OpenBench) -> None:
    async with open_bench(sparse=True) as bench, bench.hands.pool.lease(bench.base, ("odd [x]*",)) as slot:
        assert (slot.tree / "odd [x]*/four.py").exists()
        assert not (slot.tree / "src").exists()


async def committed(bench: Bench, script: str, *touches: str) -> Change | Failure:
    async with bench.hands.lease(bench.base, ("src/auth/**",)) as lease:
        assert (await lease.desk.run(script, timeout_s=60)).exit_code == 0
        return await bench.commit(lease, touches=touches)


@pytest.mark.parametrize(
    ("script", "paths"),
    [
        ("echo x > src/auth/one.py", ("src/auth/one.py",)),
        ("rm -r src/auth/deep; echo n > src/auth/new", ("src/auth/deep/two.py", "src/auth/new")),
        ("mkdir docs; echo mine > docs/five.md", ("docs/five.md",)),
        ("mkdir -p docs/new; echo mine > docs/new/file", ("docs/new/file",)),
        ("rm -rf docs src/billing; echo y > src/top.py", ("src/top.py",)),
    ],
)
async def test_a_commit_has_what_was_changed_and_all_that_was_not_there(
    open_bench: OpenBench, script: str, paths: tuple[str, ...]
) -> None:
    async with open_bench(sparse=True) as bench:
        change = await committed(bench, script)
        assert isinstance(change, Change), change
        assert change.paths == paths
        listed = await bench.hands.store.git("ls-tree", "-r", "-z", "--name-only", change.commit)
        there = set(listed.decode().rstrip("\0").split("\0"))
        assert there >= set(FILES) - set(paths)
        assert git(bench.repository, "status", "--porcelain") == ""


async def test_a_file_where_an_unseen_folder_is_would_remove_it_and_is_out_of_bounds(open_bench: OpenBench) -> None:
    async with open_bench(sparse=True) as bench:
        named = await committed(bench, "echo x > docs", "src/auth/**", "docs")
        assert isinstance(named, Change), named
        assert named.paths == ("docs", "docs/five.md")
        bounded = await committed(bench, "echo x > docs", "src/auth/**")
        assert isinstance(bounded, Failure)
        assert bounded.kind == "bounds"


async def test_without_the_setting_everything_is_there(open_bench: OpenBench) -> None:
    async with open_bench() as bench, bench.hands.lease(bench.base, ABOUT) as lease:
        assert await files(lease) == sorted(FILES)
