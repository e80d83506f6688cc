"""Objects written and read in process are git's own objects."""

import os
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.core.base.ids import Sha
from fleet.ports.worktrees import EffectError
from tests.effort import examples
from tests.worktrees import forest
from tests.worktrees.conftest import git
from worktrees.git.object_format import FILE, Person, parse_tree, signed
from worktrees.git.objects import AHEAD, LARGEST, Objects


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return forest.new_repository(tmp_path / "store.git")


@pytest.fixture
def objects(store: Path) -> Iterator[Objects]:
    opened = Objects(store)
    yield opened
    opened.close()


@examples(40)
@given(forest.files(forest.ODD_NAMES), st.binary(max_size=3000))
def test_whatever_is_written_has_gits_ids_and_passes_its_strictest_check(files: forest.Files, content: bytes) -> None:
    with forest.room() as folder:
        store = forest.new_repository(folder / "store.git")
        objects = Objects(store)
        try:
            blob = objects.put("blob", content)
            tree = forest.plant(objects, files)
            message = b"subject\n\nbody \xc3\xa9\n"
            base = forest.commit(objects, tree)
            top = objects.put_commit(tree, base, author=b"A <a@b> 1 +0000", committer=forest.ADA, message=message)
            assert blob == forest.ask(store, "hash-object", "--stdin", data=content)[1].decode().strip()
            listed = b"".join(
                b"%s %s\t%s\0" % (mode.encode(), objects.put("blob", text).encode(), path)
                for path, (mode, text) in files.items()
            )
            assert forest.ask(store, "update-index", "-z", "--index-info", data=listed)[0] == 0
            assert git(store, "write-tree") == tree
            assert git(store, "fsck", "--strict", "--full", "--no-dangling", top, blob) == ""
            fresh = Objects(store)
            try:
                assert dict(fresh.tree(tree)) == dict(objects.tree(tree))
                assert fresh.blob(blob) == content
                assert fresh.commit(top).message == message
            finally:
                fresh.close()
        finally:
            objects.close()


def test_a_reader_that_dies_is_started_again_and_ends_with_its_store(objects: Objects, store: Path) -> None:
    before = forest.children()
    tree = forest.plant(objects, {b"a": (FILE, b"a\n")})
    assert objects.find("0" * 40) is None
    [child] = forest.children() - before
    os.kill(child, signal.SIGKILL)
    assert objects.find(tree) is not None
    [child] = forest.children() - before
    git(store, "update-ref", "refs/fleet/x", forest.commit(objects, tree))
    stored = objects.find("refs/fleet/x")
    assert stored is not None
    assert stored.kind == "commit", "it sees what others wrote since"
    assert objects.find("refs/fleet/y") is None
    objects.close()
    assert forest.children() == before
    with pytest.raises(EffectError, match="does not respond"):
        objects.find(tree)


def test_many_are_asked_for_together_and_come_in_order(objects: Objects) -> None:
    contents = [b"%d\n" % number * number for number in range(3 * AHEAD + 1)]
    ids = [objects.put("blob", content) for content in contents]
    assert list(objects.blobs(ids)) == contents
    tree = objects.put_tree({b"one": (b"100644", bytes.fromhex(ids[1]))})
    with pytest.raises(EffectError, match="no blob"):
        list(objects.blobs([ids[0], tree, ids[1]]))
    with pytest.raises(EffectError, match="no blob"):
        list(objects.blobs([Sha("0" * 40)]))
    assert list(objects.blobs(ids[:2])) == contents[:2], (
        "a reader that stops in the middle leaves no answer for the next"
    )


@pytest.mark.parametrize("name", ["HEAD", "x" * 40, "0" * 40 + "\n" + "1" * 40, "refs/a b", "refs/a^{tree}", ""])
def test_a_name_that_could_mean_more_than_one_object_is_not_asked_for(objects: Objects, name: str) -> None:
    with pytest.raises(ValueError, match="is not an id or a ref"):
        objects.find(name)


def test_what_is_too_large_or_of_another_kind_is_an_error_and_the_next_question_is_answered(objects: Objects) -> None:
    blob, small = objects.put("blob", b"x" * 5000), objects.put_tree({})
    with pytest.raises(EffectError, match=r"no tree .* in the store"):
        objects.tree(blob)
    large = objects.put("blob", bytes(LARGEST + 1))
    with pytest.raises(EffectError, match=f"{LARGEST + 1} bytes"):
        objects.find(large)
    assert objects.find(small) is not None


def test_an_object_that_is_there_is_left_alone_and_an_emptied_one_is_written_again(
    objects: Objects, store: Path
) -> None:
    id_ = objects.put("blob", b"content")
    path = store / "objects" / id_[:2] / id_[2:]
    before = path.stat()
    assert objects.put("blob", b"content") == id_
    assert path.stat() == before
    path.chmod(0o644)
    path.write_bytes(b"")
    assert objects.put("blob", b"content") == id_
    assert git(store, "cat-file", "blob", id_) == "content"
    assert [file.name for file in path.parent.iterdir()] == [path.name], "nothing temporary is left"


def test_an_object_that_can_not_be_written_is_an_error_and_leaves_nothing(objects: Objects, store: Path) -> None:
    id_ = objects.put("blob", b"content")
    folder = store / "objects" / id_[:2]
    (folder / id_[2:]).unlink()
    folder.rmdir()
    folder.write_text("in the way", encoding="utf-8")
    with pytest.raises(EffectError, match="can't write"):
        objects.put("blob", b"content")


def test_many_tasks_share_one_reader(objects: Objects) -> None:
    trees = [forest.plant(objects, {b"%d" % number: (FILE, b"%d" % number)}) for number in range(40)]
    before, answers = forest.children(), dict[str, set[bytes]]()

    async def read(id_: str) -> None:
        for _ in range(5):
            stored = await objects.run(partial(objects.find, id_))
            assert stored is not None
            answers.setdefault(id_, set()).update(parse_tree(stored.content))

    async def all_at_once() -> None:
        async with anyio.create_task_group() as tasks:
            for id_ in trees:
                tasks.start_soon(read, id_)

    anyio.run(all_at_once)
    assert answers == {id_: {b"%d" % number} for number, id_ in enumerate(trees)}
    assert len(forest.children() - before) == 1


@pytest.mark.parametrize("name", ["Ada", " Ada. ", "A<d>a", '"Ada"', "fleet coder (claude-haiku-5-5)"])
def test_names_of_people_are_cleaned_as_git_cleans_them(objects: Objects, store: Path, name: str) -> None:
    env = {
        **dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), name),
        **dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "a@b"),
        **dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "1700000000 +0130"),
        "PATH": os.environ["PATH"],
    }
    made = subprocess.run(
        ["git", "commit-tree", objects.put_tree({}), "-m", "x"], cwd=store, env=env, capture_output=True, check=True
    )
    who = Person(name, "a@b")
    assert objects.commit(Sha(made.stdout.decode().strip())).author == signed(who, "1700000000 +0130")
