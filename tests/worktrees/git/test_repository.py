"""On random histories the facade answers as the git program does, whichever way it takes; with ids of both kinds."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.core.base.ids import Sha
from tests.effort import examples
from tests.worktrees import forest
from tests.worktrees.forest import Files
from worktrees.git.diff import diff_by_program, diff_in_process
from worktrees.git.merge import MergeConflict
from worktrees.git.object_format import FILE
from worktrees.git.repository import Repository

NAMES = (b"a", b"b", b"c", b"a.b", "é".encode())
Steps = list[tuple[str, bytes, bytes, str, bytes]]


@pytest.fixture(params=["sha1", "sha256"])
def repository(request: pytest.FixtureRequest) -> Iterator[Repository]:
    with forest.room() as folder:
        opened = Repository(forest.new_repository(folder / "store.git", f"--object-format={request.param}"))
        yield opened
        opened.close()


def grow(repository: Repository, start: Files, histories: list[Steps], root: Sha | None = None) -> list[Sha]:
    """A line of commits, one for each list of edits."""
    commits, now = [root] if root else [], start
    for number, steps in enumerate(histories):
        now = forest.edited(now, steps)
        tree = forest.plant(repository.objects, now)
        commits.append(forest.commit(repository.objects, tree, *commits[-1:], message=f"step {number}"))
    return commits


def fields_of(repository: Repository, *args: str) -> list[str]:
    """The answer of a git that knows nothing of ours."""
    code, answer = forest.ask(repository.git.git_dir, *args)
    assert code == 0
    return [os.fsdecode(part) for part in answer.split(b"\0") if part]


def changed_paths(repository: Repository, old: Sha, new: Sha) -> list[str]:
    return fields_of(repository, "diff-tree", "-r", "-z", "--name-only", "--no-renames", old, new)


@examples(60)
@given(
    start=forest.files(NAMES, submodules=True),
    histories=st.lists(forest.edits(NAMES, submodules=True), min_size=2, max_size=3),
    cold=st.booleans(),
)
async def test_a_diff_is_gits(repository: Repository, start: Files, histories: list[Steps], *, cold: bool) -> None:
    """One reader has the trees in memory, the other one has not."""
    commits = grow(repository, start, [[], *histories])
    reader = Repository(repository.git.git_dir) if cold else repository
    try:
        for old, new in ((commits[0], commits[-1]), (commits[-1], commits[1])):
            diff = await reader.diff(old, new)
            trees = (repository.objects.tree_of(old), repository.objects.tree_of(new))
            assert diff == diff_in_process(repository.objects, *trees) == diff_by_program(repository._entries, *trees)
            raw = fields_of(repository, "diff-tree", "-r", "-z", "--raw", "--no-renames", old, new)
            assert [[entry.mode, entry.id] for entry in diff.entries] == [line.split(" ")[1:4:2] for line in raw[::2]]
            assert list(diff.paths) == raw[1::2]
            renames = await reader.diff(old, new, renames=True)
            names = fields_of(repository, "diff-tree", "-r", "-z", "-M", "--diff-filter=R", "--name-status", old, new)
            pairs = [(entry.renamed_from, entry.path) for entry in renames.entries if entry.renamed_from]
            assert pairs == list(zip(names[1::3], names[2::3], strict=True))
            code, patch = forest.ask(repository.git.git_dir, "diff-tree", "-p", "-r", "--no-renames", old, new)
            assert code == 0
            assert await reader.patch(old, new, cap=10**7) == patch.decode("utf-8", "replace")
    finally:
        if cold:
            reader.close()


@examples(80)
@given(
    start=forest.files(NAMES, submodules=True),
    ours=st.lists(forest.edits(NAMES, submodules=True), min_size=1, max_size=2),
    theirs=forest.edits(NAMES, submodules=True),
)
async def test_a_merge_is_gits_or_a_conflict(
    repository: Repository, start: Files, ours: list[Steps], theirs: Steps
) -> None:
    [root] = grow(repository, start, [[]])
    tip = grow(repository, start, ours, root)[-1]
    commit = grow(repository, start, [theirs], root)[-1]
    code, answer = forest.ask(repository.git.git_dir, "merge-tree", "--write-tree", tip, commit)
    merged = await repository.merge(tip, commit)
    if isinstance(merged, MergeConflict):
        assert code in {1, -signal.SIGABRT}
        return
    assert (code, answer.decode().split("\n")[0]) == (0, merged.tree)
    assert list(merged.moved) == changed_paths(repository, repository.objects.tree_of(tip), merged.tree)
    assert merged.changed == set(changed_paths(repository, root, commit))


@examples(40)
@given(
    start=forest.files(NAMES, submodules=True),
    steps=forest.edits(NAMES, submodules=True),
    paths=st.lists(forest.paths(NAMES).map(os.fsdecode), max_size=6, unique=True),
)
async def test_files_are_restored_as_git_restores_them(
    repository: Repository, start: Files, steps: Steps, paths: list[str]
) -> None:
    base, commit = grow(repository, start, [[], steps])
    restored = await repository.restore_files(commit, base, paths, person=forest.ADA)
    listed = fields_of(repository, "ls-tree", "-r", "-z", base)
    names = {line.split("\t", 1)[1] for line in listed}
    gone = [path for path in paths if not any(name == path or name.startswith(f"{path}/") for name in names)]
    lines = [f"0 {'0' * len(base)}\t{path}" for path in gone]
    lines += [line for line in listed if line.split("\t", 1)[1] in paths]
    entries = [line.encode("utf-8", "surrogateescape") for line in lines]
    with forest.room() as folder:
        env = ("-c", f"core.worktree={folder}", "-c", "core.bare=false")
        index = {"GIT_INDEX_FILE": str(folder / "index")}
        for args, data in (
            (("read-tree", commit), b""),
            (("update-index", "--add", "--replace", "-z", "--index-info"), b"".join(line + b"\0" for line in entries)),
        ):
            assert forest.ask(repository.git.git_dir, *env, *args, data=data, env=index)[0] == 0
        _, tree = forest.ask(repository.git.git_dir, *env, "write-tree", env=index)
    assert repository.objects.tree_of(restored) == tree.decode().strip()


async def test_a_commit_is_read_and_copied_as_git_does(repository: Repository) -> None:
    commits = grow(repository, {}, [[("put", b"a", b"", FILE, b"1\n")], [("put", b"b", b"", FILE, b"")]])
    commit = await repository.commit(commits[1])
    form = "--format=%T%x00%P%x00%an <%ae> %ad%x00%cn <%ce> %cd%x00%B"
    tree, parent, author, committer, message = fields_of(repository, "log", "-1", form, "--date=raw", commits[1])
    assert (commit.tree, commit.parents) == (tree, (parent,))
    assert [commit.author.decode(), commit.committer.decode()] == [author, committer]
    assert commit.message.decode() == message.rstrip() + "\n"
    copy = await repository.copy_commit(commits[1], commit.tree, commits[0], committer=forest.BOB)
    assert fields_of(repository, "log", "-1", form, "--date=raw", copy)[:3] == [tree, commits[0], author]
    assert fields_of(repository, "log", "-1", "--format=%cn%x00%B", copy) == ["Bob", message]


def loose_object(repository: Repository, id_: str) -> Path:
    return repository.git.git_dir / "objects" / id_[:2] / id_[2:]


async def test_refs_and_missing_objects(repository: Repository) -> None:
    one, two = grow(repository, {b"a": (FILE, b"1\n")}, [[], [("put", b"b/c", b"", FILE, b"2\n")]])
    await repository.refs.pin("refs/fleet/x", one)
    assert await repository.commit_at("refs/fleet/x") == one
    assert await repository.refs.swap("refs/fleet/x", new=two, old=one)
    assert not await repository.refs.swap("refs/fleet/x", new=one, old=one)
    assert await repository.commit_at("refs/fleet/y") is None
    blob = repository.objects.put("blob", b"2\n")
    assert await repository.missing([one, blob]) == set()
    loose_object(repository, blob).unlink()
    fresh = Repository(repository.git.git_dir)
    assert await fresh.missing([one, blob]) == {blob}
    fresh.close()
