"""Packs that are made in process: git takes them, they hold what is new, and git makes those that would be large."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleet.core.base.ids import Sha
from tests.worktrees.conftest import git, make_repository, sha_at
from worktrees.git.object_format import PackLimits, check_pack
from worktrees.git.objects import Objects
from worktrees.store.packs import MOST_COMMITS, MOST_OBJECTS, MOST_PACKED, small_pack

FILES = {"README.md": "hello\n", "src/one.py": "ONE = 1\n", "src/deep/two.py": "TWO = 2\n", "other/x.txt": "x\n"}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "r", FILES)


@pytest.fixture
def objects(repository: Path) -> Iterator[Objects]:
    objects = Objects(repository / ".git")
    yield objects
    objects.close()


def committed(repository: Path, **files: str) -> Sha:
    for name, content in files.items():
        path = repository / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    git(repository, "add", "-A")
    git(repository, "commit", "--quiet", "--allow-empty", "-m", "more")
    return sha_at(repository)


def taken(base_of: Path, base: Sha, pack: bytes, at: Path) -> Path:
    """A store that has one commit and is given a pack, by git with all of its checks."""
    git(at.parent, "init", "--quiet", "--bare", str(at), f"--object-format={git_format(base_of)}")
    git(at, "fetch", "--quiet", str(base_of), base)
    subprocess.run(["git", "unpack-objects", "-q", "--strict"], cwd=at, input=pack, check=True, capture_output=True)
    return at


def git_format(repository: Path) -> str:
    return git(repository, "rev-parse", "--show-object-format")


def test_git_takes_a_pack_with_just_what_is_new(repository: Path, objects: Objects, tmp_path: Path) -> None:
    base = sha_at(repository)
    committed(repository, src__one="1", src__deep__two="2")
    git(repository, "rm", "--quiet", "other/x.txt")
    commit = committed(repository, new__file="new")
    pack = small_pack(objects, commit, [base, Sha("f" * 40)])
    assert pack is not None
    assert check_pack(pack, PackLimits()) == len(new_objects(repository, commit, base))
    store = taken(repository, base, pack, tmp_path / "store")
    assert git(store, "rev-parse", f"{commit}^{{tree}}") == git(repository, "rev-parse", f"{commit}^{{tree}}")
    git(store, "fsck", "--strict", "--no-dangling", commit)


def new_objects(repository: Path, commit: Sha, base: Sha) -> list[str]:
    return git(repository, "rev-list", "--objects", commit, f"^{base}").splitlines()


def test_what_the_other_side_has_is_no_pack_of_anything(repository: Path, objects: Objects) -> None:
    base = sha_at(repository)
    pack = small_pack(objects, base, [base])
    assert pack is not None
    assert check_pack(pack, PackLimits()) == 0
    empty = small_pack(objects, committed(repository), [base])
    assert empty is not None
    assert check_pack(empty, PackLimits()) == 1  # a commit with the same tree


def test_a_repository_with_longer_ids_gets_packs_of_its_own_kind(tmp_path: Path) -> None:
    repository = tmp_path / "long"
    git(tmp_path, "init", "--quiet", "--object-format=sha256", str(repository))
    base, commit = committed(repository, a="1"), committed(repository, b="2")
    objects = Objects(repository / ".git")
    pack = small_pack(objects, commit, [base])
    objects.close()
    assert pack is not None
    assert check_pack(pack, PackLimits(), digits=64) == 3
    taken(repository, base, pack, tmp_path / "store")


def test_a_submodule_is_no_object_of_this_repository(repository: Path, objects: Objects) -> None:
    base = sha_at(repository)
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{base},module")
    git(repository, "commit", "--quiet", "-m", "a submodule")
    pack = small_pack(objects, sha_at(repository), [base])
    assert pack is not None
    assert check_pack(pack, PackLimits()) == 2


def test_what_git_packs_better_is_left_to_git(repository: Path, objects: Objects) -> None:
    base = sha_at(repository)
    noise = committed(repository, noise=os.urandom(MOST_PACKED).hex())
    many = committed(repository, **{f"many__{number}": str(number) for number in range(MOST_OBJECTS + 1)})
    far = [committed(repository) for _ in range(MOST_COMMITS)][-1]
    git(repository, "checkout", "--quiet", "-b", "side", noise)
    committed(repository, side="1")
    git(repository, "merge", "--quiet", "--no-edit", far)
    merge = sha_at(repository)
    cases = {"noise": (noise, base), "many": (many, noise), "far": (far, noise), "merge": (merge, far)}
    cases |= {"nothing": (base, Sha("f" * 40)), "unknown": (Sha("e" * 40), base)}
    assert [name for name, (commit, have) in cases.items() if small_pack(objects, commit, [have]) is not None] == []
