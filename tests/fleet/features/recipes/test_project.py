"""Reading a checkout: what lies in it may be a trap."""

import os
from pathlib import Path

import pytest

from fleet.features.recipes.trials import LARGEST_TEXT, read_project
from tests.worktrees.conftest import make_repository

pytestmark = pytest.mark.anyio


def no_program(name: str) -> bool:
    return bool(name) and False


async def test_texts_are_read_in_the_limits_and_never_through_links(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret", encoding="utf-8")
    files = {
        "a.txt": "text",
        "big.txt": "x" * (LARGEST_TEXT + 10),
        "pipe": "",
        "link": "",
        "dir/b.txt": "b",
        ".gitignore": "data/\n",
    }
    root = make_repository(tmp_path / "project", files)
    for name in ("pipe", "link", "dir/b.txt"):
        (root / name).unlink()
    os.mkfifo(root / "pipe")
    (root / "link").symlink_to(secret)
    (root / "dir").rmdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "b.txt").write_text("secret", encoding="utf-8")
    (root / "dir").symlink_to(tmp_path / "elsewhere")
    (root / "data").mkdir()
    (root / "data" / "x").write_text("x", encoding="utf-8")
    tree = await read_project(root, no_program)
    assert tree.text("a.txt") == "text"
    assert len(tree.text("big.txt")) == LARGEST_TEXT
    assert tree.text("pipe") == tree.text("link") == tree.text("dir/b.txt") == tree.text("none") == ""
    assert tree.ignored == ("data/",)


async def test_a_repository_without_a_commit_is_read_as_it_is_staged(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "project", {"go.mod": "module a\n"})
    tree = await read_project(root, no_program)
    assert tree.names == ("go.mod",)
