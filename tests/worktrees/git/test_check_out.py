"""Files of a commit are written in process as git writes them."""

import os
from pathlib import Path

import anyio
from hypothesis import given
from hypothesis import strategies as st

from tests.effort import examples
from tests.worktrees import forest
from tests.worktrees.forest import Files
from worktrees.git.diff import check_out_by_git, check_out_in_process
from worktrees.git.object_format import EXECUTABLE, FILE, LINK
from worktrees.git.objects import LARGEST
from worktrees.git.repository import Repository


def written(folder: Path) -> Files:
    """The files and links below a folder, as git would list them."""
    files: Files = {}
    for path in folder.rglob("*"):
        name = os.fsencode(path.relative_to(folder))
        if path.is_symlink():
            files[name] = (LINK, os.fsencode(path.readlink()))
        elif path.is_file():
            files[name] = (EXECUTABLE if path.stat().st_mode & 0o100 else FILE, path.read_bytes())
    return files


@examples(60)
@given(
    old=forest.files(forest.ODD_NAMES),
    new=forest.files(forest.ODD_NAMES),
    ids=st.sampled_from(["sha1", "sha256"]),
)
def test_what_differs_is_written_as_git_writes_it(old: Files, new: Files, ids: str) -> None:
    with forest.room() as folder:
        repository = Repository(forest.new_repository(folder / "store.git", f"--object-format={ids}"))
        try:
            objects = repository.objects
            commits = [forest.commit(objects, forest.plant(objects, files)) for files in (old, new)]
            files = repository._diff(*commits).files
            check_out_in_process(objects, folder / "ours", files)
            anyio.run(check_out_by_git, repository.git, folder / "theirs", commits[1], files)
            wanted = {path: entry for path, entry in new.items() if old.get(path) != entry}
            assert written(folder / "ours") == written(folder / "theirs") == wanted
        finally:
            repository.close()


async def test_git_writes_what_attributes_convert_or_what_is_too_large(tmp_path: Path) -> None:
    repository = Repository(forest.new_repository(tmp_path / "store.git"))
    objects = repository.objects
    base = forest.commit(objects, objects.put_tree({}))
    files: Files = {b".gitattributes": (FILE, b"*.txt eol=crlf\n"), b"folder/a.txt": (FILE, b"a\n")}
    commit = forest.commit(objects, forest.plant(objects, files))
    changed = (await repository.diff(base, commit)).files
    for name, converts, content in (("plain", False, b"a\n"), ("converted", True, b"a\r\n")):
        await repository.check_out(tmp_path / name, commit, changed, converts=converts)
        assert (tmp_path / name / "folder/a.txt").read_bytes() == content
    large = forest.commit(objects, forest.plant(objects, {b"large": (FILE, bytes(LARGEST + 1))}))
    added = (await repository.diff(base, large)).files
    await repository.check_out(tmp_path / "large", large, added, converts=False)
    assert (tmp_path / "large/large").stat().st_size == LARGEST + 1
    repository.close()
