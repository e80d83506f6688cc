"""The demo's repository: its specification fails on the stubs, passes with the solutions, and finds every mistake."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from examples.demo.library import LARGE, SMALL, Module, library
from examples.demo.repository import build_repository, write_files

EACH = """
import io, json, sys, unittest
def passes(name):
    suite = unittest.defaultTestLoader.loadTestsFromName("tests.test_" + name)
    return unittest.TextTestRunner(stream=io.StringIO()).run(suite).wasSuccessful()
print(json.dumps([name for name in sys.argv[1:] if passes(name)]))
"""


def environment() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "LANG": "C.UTF-8"}


def passing(folder: Path, modules: Sequence[Module]) -> set[str]:
    """The modules whose specification passes."""
    command = [sys.executable, "-c", EACH, *(module.name for module in modules)]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_every_specification_fails_on_the_stubs_and_passes_with_the_solutions(tmp_path: Path, size: int) -> None:
    modules = library(size)
    build_repository(tmp_path, modules)
    assert passing(tmp_path, modules) == set()
    assert python(tmp_path, "-m", "tests").returncode == 0
    assert python(tmp_path, "-m", "tests", "--all").returncode == 1
    write_files(tmp_path, {module.path: module.code for module in modules})
    assert passing(tmp_path, modules) == {module.name for module in modules}
    everything = python(tmp_path, "-m", "tests", "--all")
    assert everything.returncode == 0
    assert f"{len(modules) + 1} of {len(modules) + 1} modules are written" in everything.stdout


def test_the_gate_sees_a_module_that_is_written_wrong(tmp_path: Path) -> None:
    modules = library(SMALL)
    build_repository(tmp_path, modules)
    roman = next(module for module in modules if module.name == "roman")
    write_files(tmp_path, {roman.path: roman.mistaken})
    assert python(tmp_path, "-m", "tests").returncode == 1


def test_modules_are_written_after_those_they_import(tmp_path: Path) -> None:
    modules = library(LARGE)
    build_repository(tmp_path, modules)
    for module in modules:
        imported = {one.name for one in modules if f"from textkit.{one.name} import" in module.code}
        assert imported == set(module.needs)
        write_files(tmp_path, {module.path: module.code})
    assert passing(tmp_path, modules) == {module.name for module in modules}


def test_every_known_mistake_is_found(tmp_path: Path) -> None:
    modules = library(LARGE)
    build_repository(tmp_path, modules)
    write_files(tmp_path, {module.path: module.code for module in modules})
    mistaken = []
    for module in modules:
        try:
            write_files(tmp_path, {module.path: module.mistaken})
        except KeyError:
            continue
        mistaken.append(module)
    assert len(mistaken) > 30
    assert passing(tmp_path, mistaken) == set()


def test_the_repository_is_the_same_every_time_and_clean(tmp_path: Path) -> None:
    heads = []
    for name in ("one", "two"):
        build_repository(tmp_path / name, library(SMALL))
        heads.append(git(tmp_path / name, "rev-parse", "HEAD"))
        assert git(tmp_path / name, "status", "--porcelain") == ""
        assert int(git(tmp_path / name, "rev-list", "--count", "HEAD")) > 3
    assert heads[0] == heads[1]


def test_stubs_keep_the_signatures_and_nothing_else() -> None:
    stub = next(module for module in library(SMALL) if module.name == "lru").stub
    assert "def get(self, key: Key, make: Callable[[], Value]) -> Value:" in stub
    assert "popitem" not in stub
    assert "The value of `key`; made, and kept, where there is none." in stub
