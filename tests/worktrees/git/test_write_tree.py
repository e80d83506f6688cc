"""A change set becomes the tree that `git add --all` would have made of it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.core.base.ids import Sha, SubtaskId
from fleet.ports.worktrees import Change, EffectError
from tests.effort import examples
from tests.worktrees import forest
from tests.worktrees.conftest import RUN, Bench, OpenBench, git, make_repository
from tests.worktrees.forest import Files
from worktrees.git.object_format import FILE, LINK
from worktrees.git.repository import Repository
from worktrees.git.write_tree import (
    NeedsGit,
    PathChange,
    change_at,
    changes_in,
    may_rewrite,
    write_by_git,
    write_in_process,
)


@contextmanager
def opened(folder: Path, *options: str) -> Iterator[Repository]:
    repository = Repository(forest.new_repository(folder / "store.git", *options))
    yield repository
    repository.close()


def lay_out(root: Path, files: Files) -> None:
    for path, (mode, content) in files.items():
        goal = root / os.fsdecode(path)
        goal.parent.mkdir(parents=True, exist_ok=True)
        if mode == LINK:
            goal.symlink_to(os.fsdecode(content))
        else:
            goal.write_bytes(content)
            goal.chmod(int(mode, 8) & 0o777)


def added(store: Repository, base: Sha, root: Path, *config: str) -> str:
    """What git makes of a worktree, in an index of its own."""
    at = (f"--git-dir={store.git.git_dir}", f"--work-tree={root}", "-c", "core.bare=false", *config)
    assert forest.ask(root, *at, "read-tree", base)[0] == 0
    assert forest.ask(root, *at, "add", "--all", "--force", ".")[0] == 0
    return forest.ask(root, *at, "write-tree")[1].decode().strip()


def change(store: Repository, base: Sha, entries: tuple[PathChange, ...]) -> Sha:
    return anyio.run(store.write_tree, base, entries)


@examples(80)
@given(
    old=forest.files(forest.ODD_NAMES),
    steps=forest.edits(forest.ODD_NAMES, 6),
    whole_folders=st.booleans(),
    ids=st.sampled_from(["sha1", "sha256"]),
)
def test_random_changes_make_the_tree_that_git_adds_in_process_and_by_git(
    old: Files, steps: list[tuple[str, bytes, bytes, str, bytes]], *, whole_folders: bool, ids: str
) -> None:
    new = forest.edited(old, steps)
    with forest.room() as folder, opened(folder, f"--object-format={ids}") as store:
        base = forest.commit(store.objects, forest.plant(store.objects, old))
        (folder / "tree").mkdir()
        lay_out(folder / "tree", new)
        paths = [path for path in {*old, *new} if old.get(path) != new.get(path)]
        if whole_folders:  # as an overlay lists it: a replaced folder, then what is in it
            tops = {path.split(b"/")[0] for path in paths}
            paths = [path for path in new if path.split(b"/")[0] in tops]
            entries = (*map(PathChange, sorted(tops)), *changes_in(folder / "tree", paths))
        else:
            entries = changes_in(folder / "tree", paths)
        wanted = added(store, base, folder / "tree")
        assert write_in_process(store.objects, base, entries) == wanted
        assert anyio.run(write_by_git, store.git, base, entries) == wanted


@pytest.mark.parametrize("attributes", ["* text=auto\n", "*.txt eol=crlf\n", "*.txt ident\n", "*.bin binary\n", ""])
@pytest.mark.parametrize("content", [b"plain\n", b"a\r\nb\r\n", b"$Id: x$\n", b"\0\r\n"])
def test_line_endings_and_keywords_are_rewritten_as_git_rewrites_them(attributes: str, content: bytes) -> None:
    with forest.room() as folder, opened(folder) as store:
        old: Files = {b".gitattributes": (FILE, attributes.encode()), b"src/a.txt": (FILE, b"old\n")}
        base = forest.commit(store.objects, forest.plant(store.objects, old))
        lay_out(folder / "tree", {**old, b"src/a.txt": (FILE, content)})
        entries = changes_in(folder / "tree", [b"src/a.txt"])
        assert change(store, base, entries) == added(store, base, folder / "tree")


@pytest.mark.parametrize(
    ("attributes", "may"),
    [
        (b"", False),
        (b"# * filter=lfs\n*.png binary -text !eol -filter\n", False),
        (b"* text=auto\n", True),
        (b'"a b" eol=lf\n', True),
        (b"[attr]mine text\n", True),
        (b"*.psd filter=lfs diff=lfs merge=lfs -text\n", True),
        (b"\xff\xfe ident\n", True),
        (b"* working-tree-encoding=UTF-16\n", True),
    ],
)
def test_attributes_that_may_rewrite_contents_are_recognised(attributes: bytes, *, may: bool) -> None:
    assert may_rewrite(attributes) is may


def test_git_is_used_only_for_changes_that_attributes_can_reach_and_says_why() -> None:
    with forest.room() as folder, opened(folder) as store:
        files: Files = {
            b"art/.gitattributes": (FILE, b"*.psd filter=lfs\n"),
            b"art/x/a": (FILE, b""),
            b"odd/.gitattributes/a": (FILE, b""),
            b"b": (FILE, b""),
        }
        base = forest.commit(store.objects, forest.plant(store.objects, files))

        (folder / "file").touch()

        def why(path: bytes) -> str | None:
            try:
                write_in_process(store.objects, base, (PathChange(path, FILE, folder / "file"),))
            except NeedsGit as reason:
                return str(reason)
            return None

        assert why(b"b") is None
        assert why(b"odd/b") is None, "a folder of that name holds no rules"
        assert why(b"art/x/new") == "attributes name line endings, a filter, an encoding or keywords"
        assert why(b"b/.gitattributes") == "attributes are changed"


@pytest.mark.parametrize("path", [b"", b"/a", b"a//b", b"../a", b"a/./b", b"a/.git/config", b".GIT/x", b"a\0b"])
def test_a_path_that_no_tree_may_hold_is_refused(path: bytes, tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        base = forest.commit(store.objects, store.objects.put_tree({}))
        (tmp_path / "file").touch()
        with pytest.raises(ValueError, match="is not a valid path in a tree"):
            change(store, base, (change_at(path, tmp_path / "file"),))


def test_a_file_that_is_also_a_folder_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        base = forest.commit(store.objects, store.objects.put_tree({}))
        (tmp_path / "file").touch()
        both = tuple(change_at(path, tmp_path / "file") for path in (b"a", b"a/b"))
        for entries in (both, both[::-1]):
            with pytest.raises(ValueError, match="a file and a folder"):
                change(store, base, entries)


def test_nothing_is_read_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret", encoding="utf-8")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "folder").symlink_to(outside)
    assert (tree / "folder" / "secret").read_text(encoding="utf-8") == "secret", "the way is open"
    folder, inside = changes_in(tree, (b"folder", b"folder/secret"))
    assert (folder.mode, inside.source) == (LINK, None)
    os.mkfifo(tree / "pipe")
    with opened(tmp_path) as store:
        base = forest.commit(store.objects, store.objects.put_tree({}))
        for source in (tree / "folder", tree / "pipe", outside, tree / "none"):
            with pytest.raises(EffectError, match=r"can't read|is not a file"):
                change(store, base, (PathChange(b"x", FILE, source),))


async def test_a_repository_with_longer_ids_goes_all_the_way(open_bench: OpenBench, tmp_path: Path) -> None:
    at = tmp_path / "other"
    at.mkdir()
    git(at, "init", "--quiet", "--object-format=sha256")
    (at / "a").write_text("a\n", encoding="utf-8")
    git(at, "add", "-A")
    git(at, "commit", "--quiet", "-m", "start")
    async with open_bench(at) as bench:
        await goes_all_the_way(bench)
        assert await bench.worktrees.at(bench.base).read_file("a") == "a\n"
        assert "Ada: start" in await bench.worktrees.at(bench.base).history()


async def test_a_plain_repository_goes_all_the_way(bench: Bench) -> None:
    await goes_all_the_way(bench)


async def test_a_repository_whose_commits_are_signed_goes_all_the_way(open_bench: OpenBench, tmp_path: Path) -> None:
    at = make_repository(tmp_path / "other")
    git(at, "config", "commit.gpgSign", "yes")
    async with open_bench(at) as bench:
        await goes_all_the_way(bench)


async def goes_all_the_way(bench: Bench) -> None:
    first = await bench.change("first", {"b/c": "first\n"})
    second = await bench.change("second", {"b/d": "second\n", "e": "e\n"})
    merged = await bench.worktrees.integrator.merge(bench.base, [first, second])
    assert merged.conflicts == ()
    assert await bench.worktrees.integrator.advance(RUN, new=merged.tip, old=bench.base)
    assert await bench.worktrees.integrator.tip(RUN) == merged.tip
    pinned = await bench.worktrees.pinned(RUN, SubtaskId("second"), 1)
    assert pinned == Change(commit=second.commit, paths=("b/d", "e"))
    assert await bench.worktrees.store.git("fsck", "--strict", "--no-dangling", "--no-progress") == b""
