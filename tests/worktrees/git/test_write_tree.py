"""A change set becomes the tree that `git add --all` would have made of it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from fleet.ports import Broken, Change
from tests.worktrees import forest
from tests.worktrees.conftest import RUN, Bench, OpenBench, git, make_repository
from tests.worktrees.forest import FILE, LINK, Files
from worktrees.changes import Entry, Rewrites, commit_change, entries_in, entry_at, rewrites, why_git
from worktrees.git import Git
from worktrees.objects import Objects
from worktrees.settings import HandSettings
from worktrees.target import Target
from worktrees.workshop import open_workshop


@contextmanager
def opened(folder: Path, *options: str) -> Iterator[tuple[Git, Objects]]:
    store = forest.new_repository(folder / "store.git", *options)
    objects = Objects(store)
    yield Git(store), objects
    objects.close()


def lay_out(root: Path, files: Files) -> None:
    for path, (mode, content) in files.items():
        goal = root / os.fsdecode(path)
        goal.parent.mkdir(parents=True, exist_ok=True)
        if mode == LINK:
            goal.symlink_to(os.fsdecode(content))
        else:
            goal.write_bytes(content)
            goal.chmod(int(mode, 8) & 0o777)


def added(store: Git, base: str, root: Path, *config: str) -> str:
    """What git makes of a worktree, in an index of its own."""
    at = (f"--git-dir={store.git_dir}", f"--work-tree={root}", "-c", "core.bare=false", *config)
    assert forest.ask(root, *at, "read-tree", base)[0] == 0
    assert forest.ask(root, *at, "add", "--all", "--force", ".")[0] == 0
    return forest.ask(root, *at, "write-tree")[1].decode().strip()


def change(git_: Git, objects: Objects, base: str, entries: tuple[Entry, ...]) -> str:
    return anyio.run(partial(commit_change, git_, objects, base, entries))


@effort(max_examples=80, deadline=None)
@given(
    old=forest.files(forest.ODD_NAMES),
    steps=forest.edits(forest.ODD_NAMES, 6),
    whole_folders=st.booleans(),
    by_git=st.booleans(),
)
def test_random_changes_come_to_the_tree_that_git_adds(
    old: Files, steps: list[tuple[str, bytes, bytes, str, bytes]], *, whole_folders: bool, by_git: bool
) -> None:
    new = forest.edited(old, steps)
    with forest.room() as folder, opened(folder) as (store, objects):
        base = forest.commit(objects, forest.plant(objects, old))
        objects.by_git = "to see that both ways agree" if by_git else None
        (folder / "tree").mkdir()
        lay_out(folder / "tree", new)
        paths = [path for path in {*old, *new} if old.get(path) != new.get(path)]
        if whole_folders:  # as an overlay tells it: a folder made anew, then what is in it
            tops = {path.split(b"/")[0] for path in paths}
            paths = [path for path in new if path.split(b"/")[0] in tops]
            entries = (*map(Entry, sorted(tops)), *entries_in(folder / "tree", paths))
        else:
            entries = entries_in(folder / "tree", paths)
        assert change(store, objects, base, entries) == added(store, base, folder / "tree")


@pytest.mark.parametrize("attributes", ["* text=auto\n", "*.txt eol=crlf\n", "*.txt ident\n", "*.bin binary\n", ""])
@pytest.mark.parametrize("content", [b"plain\n", b"a\r\nb\r\n", b"$Id: x$\n", b"\0\r\n"])
def test_line_endings_and_keywords_are_rewritten_as_git_rewrites_them(attributes: str, content: bytes) -> None:
    with forest.room() as folder, opened(folder) as (store, objects):
        old: Files = {b".gitattributes": (FILE, attributes.encode()), b"src/a.txt": (FILE, b"old\n")}
        base = forest.commit(objects, forest.plant(objects, old))
        lay_out(folder / "tree", {**old, b"src/a.txt": (FILE, content)})
        entries = entries_in(folder / "tree", [b"src/a.txt"])
        assert change(store, objects, base, entries) == added(store, base, folder / "tree")


@pytest.mark.parametrize(
    ("attributes", "does"),
    [
        (b"", "nothing"),
        (b"# * filter=lfs\n*.png binary -text !eol -filter\n", "nothing"),
        (b"* text=auto\n", "line endings"),
        (b'"a b" eol=lf\n', "line endings"),
        (b"[attr]mine text\n", "line endings"),
        (b"* text\n*.psd filter=lfs diff=lfs merge=lfs -text\n", "contents"),
        (b"\xff\xfe ident\n", "contents"),
        (b"* working-tree-encoding=UTF-16\n", "contents"),
    ],
)
def test_attributes_say_what_they_can_do_to_contents(attributes: bytes, does: Rewrites) -> None:
    assert rewrites(attributes) == does


def test_git_is_used_only_for_changes_that_attributes_can_reach_and_says_why() -> None:
    with forest.room() as folder, opened(folder) as (store, objects):
        files: Files = {
            b"art/.gitattributes": (FILE, b"*.psd filter=lfs\n"),
            b"art/x/a": (FILE, b""),
            b"b": (FILE, b""),
        }
        base = forest.commit(objects, forest.plant(objects, files))

        def why(path: bytes) -> str | None:
            return why_git(store, objects, base, (Entry(path, FILE, folder),))

        assert why(b"b") is None
        assert why(b"art/x/new") == "attributes name a filter, an encoding or keywords"
        assert why(b"b/.gitattributes") == "attributes are changed"
        objects.by_git = "its ids are not SHA-1"
        assert why(b"b") == "its ids are not SHA-1"
        (folder / "store.git" / "info" / "attributes").write_text("* filter=lfs\n", encoding="utf-8")
        objects.by_git = None
        assert why(b"b") is not None


@pytest.mark.parametrize("path", [b"", b"/a", b"a//b", b"../a", b"a/./b", b"a/.git/config", b".GIT/x", b"a\0b"])
def test_a_path_that_no_tree_may_hold_is_refused(path: bytes, tmp_path: Path) -> None:
    with opened(tmp_path) as (store, objects):
        base = forest.commit(objects, objects.put_tree({}))
        (tmp_path / "file").touch()
        with pytest.raises(ValueError, match="can't be in a tree"):
            change(store, objects, base, (entry_at(path, tmp_path / "file"),))


def test_a_file_that_is_also_a_folder_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as (store, objects):
        base = forest.commit(objects, objects.put_tree({}))
        (tmp_path / "file").touch()
        both = tuple(entry_at(path, tmp_path / "file") for path in (b"a", b"a/b"))
        for entries in (both, both[::-1]):
            with pytest.raises(ValueError, match=r"below a file|a file and a folder"):
                change(store, objects, base, entries)


def test_nothing_is_read_through_a_link(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("secret", encoding="utf-8")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "folder").symlink_to(outside)
    assert (tree / "folder" / "secret").read_text(encoding="utf-8") == "secret", "the way is open"
    folder, inside = entries_in(tree, (b"folder", b"folder/secret"))
    assert (folder.mode, inside.source) == (LINK, None)
    os.mkfifo(tree / "pipe")
    with opened(tmp_path) as (store, objects):
        base = forest.commit(objects, objects.put_tree({}))
        for source in (tree / "folder", tree / "pipe", outside, tree / "none"):
            with pytest.raises(Broken, match=r"can't be read|is no file"):
                change(store, objects, base, (Entry(b"x", FILE, source),))


async def test_a_repository_with_longer_ids_is_left_to_git(settings: HandSettings, tmp_path: Path) -> None:
    at = tmp_path / "other"
    at.mkdir()
    git(at, "init", "--quiet", "--object-format=sha256")
    (at / "a").write_text("a\n", encoding="utf-8")
    git(at, "add", "-A")
    git(at, "commit", "--quiet", "-m", "start")
    target = Target(at, at / ".git", git(at, "rev-parse", "HEAD"), "main")
    async with open_workshop(target, settings, RUN, target.base) as hands:
        assert hands.store.objects.by_git == "its ids are not SHA-1"
        await goes_all_the_way(Bench(at, target, settings, hands))


async def test_a_plain_repository_is_not_left_to_git(bench: Bench) -> None:
    assert bench.hands.store.objects.by_git is None
    await goes_all_the_way(bench)


async def test_a_repository_whose_commits_are_signed_is_left_to_git(open_bench: OpenBench, tmp_path: Path) -> None:
    at = make_repository(tmp_path / "other")
    git(at, "config", "commit.gpgSign", "yes")
    async with open_bench(at) as bench:
        assert bench.hands.store.objects.by_git == "its commits are to be signed"
        await goes_all_the_way(bench)


async def goes_all_the_way(bench: Bench) -> None:
    first = await bench.change("first", {"b/c": "first\n"})
    second = await bench.change("second", {"b/d": "second\n", "e": "e\n"})
    merged = await bench.hands.merge(bench.base, [first, second])
    assert merged.conflicts == ()
    assert await bench.hands.advance("r1", new=merged.tip, old=bench.base)
    assert await bench.hands.tip("r1") == merged.tip
    pinned = await bench.hands.pinned("r1", "second", 1)
    assert pinned == Change(commit=second.commit, paths=("b/d", "e"))
    assert await bench.hands.store.git("fsck", "--strict", "--no-dangling", "--no-progress") == b""
