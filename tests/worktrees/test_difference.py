"""What differs between two commits, as it is told by a git program that stays."""

import os
import signal
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from fleet.ports import Broken
from tests.worktrees import forest
from tests.worktrees.forest import FILE, Files
from worktrees.difference import Difference, Differences
from worktrees.objects import Objects


@pytest.fixture
def store() -> Iterator[tuple[Objects, Differences]]:
    with forest.room() as folder:
        at = forest.new_repository(folder / "store.git")
        objects, differences = Objects(at), Differences(at)
        yield objects, differences
        objects.close()
        differences.close()


def known(files: Files, objects: Objects) -> dict[str, tuple[str, str]]:
    return {os.fsdecode(path): (mode, objects.put("blob", content)) for path, (mode, content) in files.items()}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(old=forest.files((*forest.ODD_NAMES, b"end\n")), new=forest.files((*forest.ODD_NAMES, b"end\n")))
def test_it_is_what_two_lists_of_files_do_not_share(store: tuple[Objects, Differences], old: Files, new: Files) -> None:
    objects, differences = store
    commits = [forest.commit(objects, forest.plant(objects, files)) for files in (old, new)]
    before, after = known(old, objects), known(new, objects)
    found = differences.between(*commits)
    assert {path: (mode, blob) for path, mode, blob in found.there} == {
        path: node for path, node in after.items() if before.get(path) != node
    }
    assert set(found.gone) == before.keys() - after.keys()


def test_a_commit_that_is_not_there_is_no_commit_without_a_difference(store: tuple[Objects, Differences]) -> None:
    objects, differences = store
    first, second = (
        forest.commit(objects, forest.plant(objects, {b"a": (FILE, content)})) for content in (b"1\n", b"2\n")
    )
    for pair in (("0" * 40, first), (first, "0" * 40), (objects.put_tree({}), first), (first, objects.put_tree({}))):
        with pytest.raises(Broken):
            differences.between(*pair)
    assert [path for path, _, _ in differences.between(first, second).there] == ["a"], "and it goes on answering"
    tree = objects.commit(second).tree
    crooked = forest.commit(objects, first)  # calls a commit its tree
    assert [path for path, _, _ in differences.between(crooked, second).there] == ["a"]
    for pair in ((second, tree), (tree, second)):
        with pytest.raises(Broken):
            differences.between(*pair)
    assert [path for path, _, _ in differences.between(first, second).there] == ["a"], "whatever it took for a tree"
    for name in ("HEAD", f"{first}\nend", "refs/fleet/x"):
        with pytest.raises(ValueError, match="is no commit"):
            differences.between(name, first)


def test_git_is_started_once_and_again_when_it_was_killed(store: tuple[Objects, Differences]) -> None:
    objects, differences = store
    commits = [forest.commit(objects, forest.plant(objects, {b"a": (FILE, b"%d\n" % n)})) for n in range(40)]
    before = forest.children()
    assert differences.between(commits[0], commits[0]) == Difference((), ())
    assert forest.children() == before
    for old, new in pairwise(commits):
        assert len(differences.between(old, new).there) == 1
    [child] = forest.children() - before
    os.kill(child, signal.SIGKILL)
    assert len(differences.between(commits[0], commits[1]).there) == 1
    differences.close()
    assert forest.children() == before
    with pytest.raises(Broken, match="does not tell"):
        differences.between(commits[0], commits[1])


def test_it_is_told_of_other_ids_too(tmp_path: Path) -> None:
    store = forest.new_repository(tmp_path / "store.git", "--object-format=sha256")
    who = "Ada <ada@example.org> 1700000000 +0000"
    commits, blob = [], ""
    for text in (b"1\n", b"2\n"):
        blob = forest.ask(store, "hash-object", "-w", "--stdin", data=text)[1].decode().strip()
        tree = forest.ask(store, "mktree", data=f"100644 blob {blob}\ta\n".encode())[1].decode().strip()
        raw = f"tree {tree}\nauthor {who}\ncommitter {who}\n\nx\n".encode()
        commits.append(forest.ask(store, "hash-object", "-t", "commit", "-w", "--stdin", data=raw)[1].decode().strip())
    differences = Differences(store)
    try:
        assert differences.between(*commits).there == (("a", "100644", blob),)
    finally:
        differences.close()
