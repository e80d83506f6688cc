"""What the tests of the house look at: every file of the project, as text and as syntax."""

import ast
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = ("fleet/", "agents/", "worktrees/", "dashboards/")
LARGEST = 2_000_000  # bytes; larger files are data, and there should be none


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def files() -> Mapping[str, str]:
    """The text of each file that is or would be committed, by its path."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout
    paths = [path for path in listed.decode().split("\0") if path and (ROOT / path).is_file()]
    return {path: text for path in sorted(set(paths)) if (text := _text(ROOT / path)) is not None}


@pytest.fixture(scope="session")
def python_files(files: Mapping[str, str]) -> Mapping[str, ast.Module]:
    """The syntax of each Python file."""
    return {path: _syntax(path, text) for path, text in files.items() if path.endswith(".py")}


@pytest.fixture(scope="session")
def product(files: Mapping[str, str]) -> Mapping[str, ast.Module]:
    """The syntax of each Python file that is shipped."""
    shipped = (path for path in files if path.startswith(PRODUCT) and path.endswith(".py"))
    return {path: _syntax(path, files[path]) for path in shipped}


@pytest.fixture(scope="session")
def imports(product: Mapping[str, ast.Module]) -> Mapping[str, frozenset[str]]:
    """What each shipped file imports, anywhere in it: modules, and names that may be modules."""
    return {path: frozenset(_imported(tree)) for path, tree in product.items()}


def nodes(tree: ast.Module, *types: type[ast.AST]) -> Iterator[Any]:
    """All nodes of these types in a file, by type. A file is walked once for all tests."""
    by_type = _nodes_by_type(tree)
    for each in types:
        yield from by_type.get(each, ())


@cache
def _nodes_by_type(tree: ast.Module) -> Mapping[type[ast.AST], list[ast.AST]]:
    found = defaultdict[type[ast.AST], list[ast.AST]](list)
    for node in ast.walk(tree):
        found[type(node)].append(node)
    return found


@cache
def _syntax(path: str, text: str) -> ast.Module:
    return ast.parse(text, path)


def _imported(tree: ast.Module) -> list[str]:
    names: list[str] = []
    for node in nodes(tree, ast.Import, ast.ImportFrom):
        if isinstance(node, ast.Import):
            names += (alias.name for alias in node.names)
        elif node.module and not node.level:
            names += (f"{node.module}.{alias.name}" for alias in node.names)
    return names


def _text(path: Path) -> str | None:
    data = path.read_bytes()[:LARGEST]
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
