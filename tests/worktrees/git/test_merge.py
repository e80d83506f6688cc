"""A merge in process is the merge that git would make, or none at all."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.effort import examples
from tests.worktrees import forest
from tests.worktrees.forest import Files
from worktrees.git.merge import is_on_line, merge_in_process
from worktrees.git.object_format import FILE
from worktrees.git.objects import Objects

NAMES = (b"a", b"b", b"c")
TEXT = b"\n".join(forest.LINES) + b"\n"
BASE: Files = {
    b"src/one": (FILE, TEXT),
    b"src/two": (FILE, TEXT.replace(b"line 3", b"LINE 3")),
    b"docs/page": (FILE, b"page\n"),
    b"top": (FILE, b"top\n"),
}


@pytest.fixture(scope="module")
def ground() -> Iterator[tuple[Path, Objects]]:
    with forest.room() as folder:
        store = forest.new_repository(folder / "store.git")
        objects = Objects(store)
        yield store, objects
        objects.close()


def three_ways(ground: tuple[Path, Objects], base: Files, ours: Files, theirs: Files) -> tuple[str | None, str | None]:
    """The merge in process and the merge by git; None where it is not a clean merge."""
    store, objects = ground
    trees = [forest.plant(objects, files) for files in (base, ours, theirs)]
    root = forest.commit(objects, trees[0])
    sides = [forest.commit(objects, tree, root, message=name) for name, tree in zip("ot", trees[1:], strict=True)]
    code, answer = forest.ask(store, "merge-tree", "--write-tree", *sides)
    assert code in {0, 1, -signal.SIGABRT}  # git 2.39 fails an assertion on some renames
    return merge_in_process(objects, *trees), answer.decode().split("\n")[0] if code == 0 else None


@examples(400)
@given(base=forest.files(NAMES), ours=forest.edits(NAMES), theirs=forest.edits(NAMES))
def test_whatever_two_sides_do_the_merge_in_process_is_gits_or_none(
    ground: tuple[Path, Objects],
    base: Files,
    ours: list[tuple[str, bytes, bytes, str, bytes]],
    theirs: list[tuple[str, bytes, bytes, str, bytes]],
) -> None:
    in_process, merged = three_ways(ground, base, forest.edited(base, ours), forest.edited(base, theirs))
    assert in_process in {None, merged}


@examples(60)
@given(base=forest.files(NAMES), ours=forest.edits(NAMES), theirs=forest.edits(NAMES), shared=st.booleans())
def test_sides_that_change_different_folders_always_merge_in_process(
    ground: tuple[Path, Objects],
    base: Files,
    ours: list[tuple[str, bytes, bytes, str, bytes]],
    theirs: list[tuple[str, bytes, bytes, str, bytes]],
    *,
    shared: bool,
) -> None:
    start = b"shared/" if shared else b""

    def world(left: Files, right: Files) -> Files:
        sides = ((b"left/", left), (b"right/", right))
        return {start + side + path: content for side, files in sides for path, content in files.items()}

    old, left, right = base, forest.edited(base, ours), forest.edited(base, theirs)
    in_process, merged = three_ways(ground, world(old, old), world(left, old), world(old, right))
    if merged is not None and old and left and right:  # a removed folder could have been renamed
        assert in_process == merged


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ([("put", b"src/one", b"1")], [("put", b"src/one", b"2")]),
        ([("put", b"src/one", b"1")], [("put", b"src/one", b"1")]),
        ([("remove", b"top", b"")], [("remove", b"top", b"")]),
        ([("move", b"src/one", b"src/uno")], [("put", b"src/one", b"edited\n" + TEXT)]),
        ([("move", b"src/one", b"src/uno")], [("move", b"src/one", b"src/un")]),
        ([("move", b"src", b"lib")], [("put", b"src/three", b"3")]),
        ([("remove", b"src", b"")], [("put", b"src/one", b"edited\n" + TEXT)]),
        ([("put", b"new", b"file")], [("put", b"new/inside", b"folder")]),
        ([("put", b"docs", b"a file now")], [("put", b"docs/other", b"x")]),
    ],
    ids=[
        *("same file", "same change", "both remove", "rename and edit", "two renames", "folder renamed and added to"),
        *("folder removed and edited", "file against folder", "folder made a file"),
    ],
)
def test_where_the_sides_meet_git_is_asked(
    ground: tuple[Path, Objects], ours: list[tuple[str, bytes, bytes]], theirs: list[tuple[str, bytes, bytes]]
) -> None:
    sides = [dict(BASE), dict(BASE)]
    for files, steps in zip(sides, (ours, theirs), strict=True):
        for kind, path, more in steps:
            match kind:
                case "put":
                    forest.put(files, path, (FILE, more))
                case "move":
                    forest.move(files, path, more)
                case _:
                    forest.remove(files, path)
    in_process, _ = three_ways(ground, BASE, *sides)
    assert in_process is None


def test_two_sides_may_make_the_same_new_folder_and_empty_a_folder_together(ground: tuple[Path, Objects]) -> None:
    ours, theirs = dict(BASE), dict(BASE)
    forest.put(ours, b"new/deep/one", (FILE, b"1"))
    forest.put(theirs, b"new/deep/two", (FILE, b"2"))
    forest.remove(ours, b"src/one")
    forest.remove(theirs, b"src/two")
    in_process, merged = three_ways(ground, BASE, ours, theirs)
    assert in_process == merged is not None


def test_a_tree_too_deep_to_walk_is_left_to_git(ground: tuple[Path, Objects]) -> None:
    deep = b"/".join([b"d"] * 300)
    base = {deep + b"/x": (FILE, b"x"), deep + b"/y": (FILE, b"y")}
    ours, theirs = {**base, deep + b"/x": (FILE, b"1")}, {**base, deep + b"/y": (FILE, b"2")}
    in_process, merged = three_ways(ground, base, ours, theirs)
    assert in_process is None
    assert merged is not None


def test_a_base_counts_only_when_a_straight_line_leads_to_it(ground: tuple[Path, Objects]) -> None:
    _, objects = ground
    tree = objects.put_tree({})
    root = forest.commit(objects, tree, message="root")
    base = forest.commit(objects, tree, root, message="base")
    landed = forest.commit(objects, tree, base, message="landed")
    tip = forest.commit(objects, tree, landed, message="tip")
    merge = forest.commit(objects, tree, tip, root, message="merge")
    stranger = forest.commit(objects, tree, message="stranger")
    assert is_on_line(objects, tip, base=base, unless=stranger)
    assert is_on_line(objects, base, base=base, unless=stranger)
    assert not is_on_line(objects, tip, base=base, unless=landed), "it landed before: its own merge base is itself"
    assert not is_on_line(objects, merge, base=base, unless=stranger)
    assert not is_on_line(objects, tip, base=stranger, unless=base)
