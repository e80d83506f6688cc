"""What an overlay's tenant did becomes the very tree that git makes of a worktree where the same was done."""

import os
import shlex
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.core.facts.facts import Failure
from fleet.ports.worktrees import Change
from tests.effort import examples
from tests.worktrees.conftest import Bench, added_by_git, git, make_repository, sign
from worktrees.base.settings import LeaseKind
from worktrees.git.program import Git
from worktrees.leases.pool import Slot
from worktrees.leases.union_view import OverlayChange, TreeView, ignored, read_changes

FILES = {
    ".gitignore": "*.log\nbuild/\n/only-here\n",
    "a/one": "1\n",
    "a/b/two": "2\n",
    "a/b/c/three": "3\n",
    "a/.gitignore": "!kept.log\n*.tmp\n",
    "d e/four": "4\n",
    "crlf.txt": "x\n",
    "six": "6\n",
}
TRACKED_ALTHOUGH_IGNORED = ("build/tracked", "a/b/tracked.log")
NAMES = (
    "a",
    "b",
    "c",
    "one",
    "two",
    "d e",
    "six",
    "x.log",
    "kept.log",
    "build",
    "y.tmp",
    "only-here",
    "ü",
    '"q"',
    ":(top)",
)
SPECIAL = (".gitignore", "a/.gitignore", "build/tracked", "a/b/tracked.log", "a/b", "a/b/c/three", "link", "run", "sub")
TEXTS = ("1\n", "new\n", "*\n", "!*.log\n", "a/\r\nb\r\n", "")

paths = st.one_of(
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join), st.sampled_from((*SPECIAL, *FILES))
)
edits = st.one_of(
    st.builds(
        "mkdir -p $(dirname {0}); printf %s {1} > {0}".format,
        paths.map(shlex.quote),
        st.sampled_from(TEXTS).map(shlex.quote),
    ),
    st.builds("rm -rf {}".format, paths.map(shlex.quote)),
    st.builds("mv -T {} {}".format, paths.map(shlex.quote), paths.map(shlex.quote)),
    st.builds("rm -rf {1}; mv -T {0} {1}".format, paths.map(shlex.quote), paths.map(shlex.quote)),
    st.builds(
        "cp -a {} /tmp/copy; cp -a /tmp/copy {}; rm -rf /tmp/copy".format,
        paths.map(shlex.quote),
        paths.map(shlex.quote),
    ),
    st.builds("chmod {} {}".format, st.sampled_from(("+x", "-x", "000", "4755")), paths.map(shlex.quote)),
    st.builds(
        "ln -sfn {} {}".format, st.sampled_from(("one", "a", "../six", "../../out", "gone")), paths.map(shlex.quote)
    ),
    st.builds("rm -rf {0}; mkdir -p {0}; echo inside > {0}/one".format, paths.map(shlex.quote)),
    st.builds("touch {}".format, paths.map(shlex.quote)),
)


@pytest.fixture
def lease_kind() -> LeaseKind:
    return "overlay"


@pytest.fixture(params=["with attributes", "without"])
def repository(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    at = make_repository(tmp_path / "project", FILES)
    for name in TRACKED_ALTHOUGH_IGNORED:
        (at / name).parent.mkdir(exist_ok=True)
        (at / name).write_text("tracked\n", encoding="utf-8")
    (at / "run").write_text("#!/bin/sh\n", encoding="utf-8")
    (at / "run").chmod(0o755)
    (at / "link").symlink_to("a/b")
    rules = {"with attributes": "crlf.txt text eol=crlf\n*.tmp -text\n* text=auto\n", "without": "# none\n"}
    (at / ".gitattributes").write_text(rules[request.param], encoding="utf-8")
    git(at, "add", "--force", "--all")
    git(at, "update-index", "--add", "--cacheinfo", f"160000,{git(at, 'rev-parse', 'HEAD')},sub")
    git(at, "commit", "--quiet", "--message", "everything")
    return at


async def refusal(bench: Bench, slot: Slot) -> object:
    """The outcome of a slot's commit."""
    return summary(await bench.commit_slot(slot, bench.base))


def summary(outcome: Change | Failure) -> object:
    if isinstance(outcome, Failure):
        return outcome.kind, sorted(outcome.evidence.splitlines())
    return outcome.paths


@given(steps=st.lists(st.lists(edits, max_size=6), min_size=1, max_size=3))
@examples(40)
async def test_an_overlay_commits_what_git_would(bench: Bench, steps: list[list[str]]) -> None:
    index = bench.settings.state_dir / "index"
    async with bench.worktrees.leases.pool.lease(bench.base) as slot, bench.worktrees.lease(bench.base) as lease:
        for step in steps:
            script = "\n".join(f"({edit}) 2>/dev/null" for edit in step)
            await lease.workspace.run(script, timeout_s=60)
            await bench.worktrees.leases.box.run(
                slot.place, bench.worktrees.leases.box.shell(script), timeout_s=60, cap=1000
            )
        ours = await bench.commit(lease)
        if isinstance(ours, Change):
            tree = await bench.worktrees.store.git.line("rev-parse", f"{ours.commit}^{{tree}}")
            assert tree == await added_by_git(slot, bench.base, index)
        assert summary(ours) == await refusal(bench, slot)


@pytest.mark.parametrize("number", range(3))
async def test_the_layers_below_make_no_difference(bench: Bench, number: int) -> None:
    """The same edit on a checkout, and on a diff layer above one that another lease uses."""
    steps = [
        "echo 9 > a/one; rm -r 'd e'; mkdir six.d; mv six six.d/six; chmod -x run",
        "rm -r a/b; echo 8 > a/b; ln -sfn crlf.txt link; echo more >> crlf.txt",
        "rm a/one; mkdir a/one; echo 7 > a/one/x; rm .gitattributes; echo new > new",
    ]
    async with bench.worktrees.lease(bench.base) as first:
        await first.workspace.run(steps[number], timeout_s=60)
        moved = await bench.commit(first, touches=("**", ".gitattributes"))
        assert isinstance(moved, Change)
        names = "find . -path ./.git -o -type d -o -printf '%y %m %p %l\\n' | sort"
        show = f"{names}; find . -name .git -o -type f -print0 | sort -z | xargs -0 sha1sum"
        for commit in (moved.commit, bench.base, moved.commit):
            async with bench.worktrees.lease(commit) as lease, bench.worktrees.leases.pool.lease(commit) as slot:
                seen = await lease.workspace.run(show, timeout_s=60)
                wanted = await bench.worktrees.leases.box.run(
                    slot.place, bench.worktrees.leases.box.shell(show), timeout_s=60, cap=100_000
                )
                assert seen.output == wanted.stdout.decode()
                await lease.workspace.run("echo 5 > fresh; rm -f crlf.txt", timeout_s=60)
                change = await lease.commit(sign("three", attempt=number), ())
                assert isinstance(change, Change)
                assert change.paths == ("crlf.txt", "fresh")


async def test_a_list_of_the_repositorys_own_keeps_files_out_where_no_ignore_file_does(tmp_path: Path) -> None:
    at = make_repository(tmp_path / "bare-of-rules", {"one": "1\n"})
    repository = Git(at / ".git")
    view, paths = TreeView((at,)), ["a.log", "b"]
    assert await ignored(repository, view, paths) == frozenset()
    (at / ".git/info").mkdir(exist_ok=True)
    (at / ".git/info/exclude").write_text("# what git writes there\n\n*.log\n", encoding="utf-8")
    assert await ignored(repository, view, paths) == {"a.log"}


def test_the_change_set_is_read_from_the_upper_folder_alone(tmp_path: Path) -> None:
    (tmp_path / "b/c").mkdir(parents=True)
    os.setxattr(tmp_path / "b", "user.overlay.opaque", b"y")
    (tmp_path / "b/c/new").write_text("", encoding="utf-8")
    (tmp_path / "b/c/new").chmod(0o744)
    (tmp_path / "a").symlink_to("/nowhere")
    os.mknod(tmp_path / "gone", stat.S_IFCHR, os.makedev(0, 0))
    (tmp_path / "empty").mkdir()
    assert read_changes(tmp_path) == (
        OverlayChange("a", "link", "120000"),
        OverlayChange("b", "opaque"),
        OverlayChange("b/c/new", "file", "100755"),
        OverlayChange("gone", "deleted"),
    )


def test_a_view_shows_what_an_overlay_would(tmp_path: Path) -> None:
    upper, lower = tmp_path / "upper", tmp_path / "lower"
    for name in ("kept/file", "gone/file", "replaced/old", "file", "covered/file"):
        (lower / name).parent.mkdir(parents=True, exist_ok=True)
        (lower / name).write_text("", encoding="utf-8")
    (upper / "replaced").mkdir(parents=True)
    os.setxattr(upper / "replaced", "user.overlay.opaque", b"y")
    (upper / "replaced/new").write_text("", encoding="utf-8")
    (upper / "covered").write_text("", encoding="utf-8")
    os.mknod(upper / "gone", stat.S_IFCHR, os.makedev(0, 0))
    view = TreeView((upper, lower))
    assert sorted(view.files("")) == ["covered", "file", "kept/file", "replaced/new"]
    assert view.is_folder("kept")
    assert not view.is_file("gone/file")
    assert not view.is_file("replaced/old")
    assert view.find("covered/file") is None


@pytest.mark.parametrize(
    ("link", "goal", "out"),
    [
        ("l", "file", False),
        ("l", "gone/also", False),
        ("l", "/file", True),
        ("l", "../file", True),
        ("d/l", "../file", False),
        ("d/l", "../../file", True),
        ("l", "far/../../../x", True),
        ("l", "loop/x", True),
        ("l", "x/" * 2000, True),
        ("l", "n" * 4000, False),
    ],
)
def test_a_link_that_leads_out_is_seen_through_the_layers(tmp_path: Path, link: str, goal: str, *, out: bool) -> None:
    upper, lower = tmp_path / "upper", tmp_path / "lower"
    (lower / "d/e").mkdir(parents=True)
    (lower / "far").symlink_to("d/e")
    (lower / "loop").symlink_to("loop")
    (upper / "d").mkdir(parents=True)
    (upper / link).symlink_to(goal)
    assert TreeView((upper, lower)).leads_out(link) is out
