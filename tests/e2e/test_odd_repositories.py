"""Repositories that are not the usual kind: each can be worked on, and a warning names what is odd about it."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.e2e.conftest import Serve
from tests.e2e.stage import Done, Stage, content, landed, script, subtask, untouched
from tests.worktrees.conftest import git, make_repository


@pytest.fixture
def url(model: Serve) -> str:
    return model(script(subtask("one")))


def run(stage: Stage, repository: Path, url: str, *more: str) -> Done:
    asked = ("run", "Write", "--name", "r", "--base-url", url, "--yes", *more)
    return stage.fleet(*asked, at=repository).ended(0).says("LANDED")


def test_a_bare_repository(stage: Stage, repository: Path, url: str) -> None:
    bare = stage.room / "bare.git"
    git(stage.room, "clone", "--quiet", "--bare", str(repository), str(bare))
    asked = ("run", "Write", "--name", "r", "--base-url", url, "--yes", "--repo", str(bare))
    stage.fleet(*asked).ended(0).says("LANDED", f"{bare} is a bare repository, so the run starts from main")
    assert landed(bare, "r") == ["one"]
    stage.fleet("merge", "r", "--into", "main").ended(0).says("main is now at")
    assert git(bare, "rev-parse", "main") == git(bare, "rev-parse", "fleet/r")


def test_a_shallow_clone(stage: Stage, repository: Path, url: str) -> None:
    git(repository, "commit", "--quiet", "--allow-empty", "-m", "second")
    shallow = stage.room / "shallow"
    git(stage.room, "clone", "--quiet", "--depth", "1", f"file://{repository}", str(shallow))
    with untouched(shallow):
        run(stage, shallow, url).says("the repository is a shallow clone")
    assert landed(shallow, "r") == ["one"]


def test_a_submodule(stage: Stage, repository: Path, url: str) -> None:
    part = make_repository(stage.room / "part", {"part.txt": "part\n"})
    git(repository, "submodule", "--quiet", "add", str(part), "part")
    git(repository, "commit", "--quiet", "-m", "a submodule")
    with untouched(repository):
        run(stage, repository, url).says("fleet does not fetch submodules")
    assert git(repository, "ls-tree", "fleet/r", "part") == git(repository, "ls-tree", "main", "part")
    assert git(repository, "diff", "--name-only", "main", "fleet/r") == "one.txt"


def test_pointers_of_large_files(stage: Stage, repository: Path, url: str) -> None:
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 12345\n"
    (repository / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n", encoding="utf-8")
    (repository / "data.bin").write_text(pointer, encoding="utf-8")
    git(repository, "add", "-A")
    git(repository, "commit", "--quiet", "-m", "pointers")
    with untouched(repository):
        run(stage, repository, url).says("files in Git LFS appear as pointers")
    assert content(repository, "r", "data.bin") + "\n" == pointer
    assert git(repository, "diff", "--name-only", "main", "fleet/r") == "one.txt"


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A folder in memory: another file system than the one of temporary files on most machines."""
    with TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def test_the_state_on_another_drive(stage: Stage, repository: Path, url: str, elsewhere: Path) -> None:
    moved_stage = stage.with_(FLEET_STATE_DIR=str(elsewhere / "state"))
    with untouched(repository):
        run(moved_stage, repository, url)
    assert landed(repository, "r") == ["one"]
    moved_stage.nothing_runs("r")


def test_paths_with_spaces_and_letters_of_all_kinds(stage: Stage, url: str) -> None:
    room = stage.room / "mö rê 'quoted\" $HOME ünï ✓"
    repository = make_repository(room / "repository ü", {"README.md": "x\n", "ein tür.txt": "x\n"})
    moved_stage = stage.with_(FLEET_STATE_DIR=str(room / "state ö"), HOME=str(room))
    with untouched(repository):
        run(moved_stage, repository, url)
    assert landed(repository, "r") == ["one"]
    assert moved_stage.status("r")["repository"] == str(repository)
    moved_stage.nothing_runs("r")


def test_a_path_that_is_no_unicode_is_refused_in_words(stage: Stage, url: str) -> None:
    name = b"caf\xe9".decode("utf-8", "surrogateescape")
    repository = make_repository(stage.room / name)
    done = stage.fleet("run", "Write", "--base-url", url, "--yes", at=repository).ended(2)
    done.says("is not UTF-8", "rename")
    assert stage.runs == []


def test_a_linked_worktree_and_a_folder_within(stage: Stage, repository: Path, url: str) -> None:
    linked = stage.room / "linked"
    git(repository, "worktree", "add", "--quiet", "-b", "side", str(linked))
    (linked / "deep").mkdir()
    run(stage, linked / "deep", url).says("started on side")
    assert landed(repository, "r", "side") == ["one"]
    stage.fleet("merge", "r", at=linked / "deep").ended(0).says("side is now at")
    assert (linked / "one.txt").read_text(encoding="utf-8") == "one\n"
    assert git(linked, "status", "--porcelain") == git(repository, "status", "--porcelain") == ""
