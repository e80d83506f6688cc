"""Imports point inwards, and each third-party library has one doorway."""

import ast
import re
import sys
import tomllib
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path

OURS = {"fleet", "agents", "worktrees", "dashboards"}

LOOP = (
    "fleet.notes",
    "fleet.review",
    "fleet.asking",
    "fleet.world",
    "fleet.engine",
    "fleet.meter",
    "fleet.perform",
    "fleet.landing",
    "fleet.checking",
    "fleet.together",
)

# A module and what of ours it may import; the longest prefix that fits it decides. None: anything.
MAY_IMPORT: dict[str, tuple[str, ...] | None] = {
    "fleet": ("fleet",),
    "fleet.app": None,
    "fleet.cli": None,
    "fleet.doctor": None,
    "fleet.staff": ("fleet.core", "fleet.ports", "fleet.settings", "agents.settings"),
    "fleet.tidy": None,
    "fleet.__main__": None,
    "fleet.core": ("fleet.core",),
    "fleet.errors": (),
    "fleet.ports": ("fleet.core", "fleet.errors"),
    "fleet.engine": ("fleet.core", "fleet.ports", *LOOP, "fleet.__version__"),
    "fleet.meter": ("fleet.core", "fleet.ports", *LOOP),
    "fleet.notes": ("fleet.ports",),
    "fleet.review": ("fleet.core", "fleet.ports", "fleet.checking"),
    "fleet.asking": ("fleet.core", "fleet.ports", *LOOP),
    "fleet.world": ("fleet.core", "fleet.ports", *LOOP),
    "fleet.landing": ("fleet.core", "fleet.ports", *LOOP),
    "fleet.checking": ("fleet.core", "fleet.ports", *LOOP),
    "fleet.together": ("fleet.core", "fleet.ports"),
    "fleet.perform": ("fleet.core", "fleet.ports", *LOOP),
    "fleet.journal": ("fleet.core", "fleet.ports", "fleet.journal", "fleet.points"),
    "fleet.points": (),
    "fleet.settings": ("fleet.core",),
    "fleet.toml": ("fleet.ports",),
    "agents": ("agents", "fleet.core", "fleet.ports", "fleet.__version__"),
    "worktrees": ("worktrees", "fleet.core", "fleet.points", "fleet.ports", "fleet.__version__"),
    "dashboards": ("dashboards", "fleet.core", "fleet.ports", "fleet.__version__"),
}
OUTERMOST = ("fleet.app", "fleet.cli", "fleet.__main__")

# Where a library may be imported. `*` crosses folders here.
DOORWAYS: dict[str, tuple[str, ...]] = {
    "aiohttp": ("agents/simulated/*", "agents/relay.py", "agents/fetching.py"),
    "anthropic": ("agents/models/claude.py",),
    "git": ("worktrees/reader.py",),
    "httpx2": ("agents/models/claude.py",),
    "platformdirs": ("fleet/config.py",),
    "prometheus_client": ("dashboards/*",),
    "rich": ("dashboards/*", "fleet/cli/*"),
    "sqlite3": ("fleet/journal.py",),
    "textual": ("dashboards/*",),
    "tomli_w": ("fleet/toml.py",),
    "tomllib": (
        "fleet/toml.py",
        "agents/models/prices.py",
        "agents/simulated/script.py",
    ),  # agents may not know fleet's
    "tree_sitter": ("agents/tools/outliner.py",),
    "typer": ("fleet/cli/*",),
}
NOT_LIKE_THEIR_DISTRIBUTION = {"gitpython": "git"}

# What the core may use of the standard library: nothing with a file, a clock, a process or chance in it.
PURE = {
    *("__future__", "abc", "bisect", "collections", "contextlib", "copy", "dataclasses", "datetime", "decimal"),
    *("difflib", "enum", "fnmatch", "fractions", "functools", "graphlib", "hashlib", "heapq", "itertools", "json"),
    *("math", "numbers", "operator", "re", "shlex", "statistics", "string", "textwrap", "types", "typing"),
    "unicodedata",
}
CLOCKS = {"now", "utcnow", "today"}


def test_imports_point_inwards(imports: Mapping[str, frozenset[str]]) -> None:
    wrong = [
        f"{path} imports {name}"
        for path, names in imports.items()
        for name in sorted(names)
        if name.partition(".")[0] in OURS and not _may_import(_module(path), name)
    ]
    assert wrong == []


def test_the_core_uses_only_itself_pydantic_and_what_is_pure(imports: Mapping[str, frozenset[str]]) -> None:
    allowed = PURE | {"fleet", "pydantic"}
    wrong = [
        f"{path} imports {name}"
        for path, names in imports.items()
        if path.startswith("fleet/core/")
        for name in sorted(names)
        if name.partition(".")[0] not in allowed
    ]
    assert wrong == []


def test_the_core_reads_no_clock(product: Mapping[str, ast.Module]) -> None:
    wrong = [
        f"{path}:{node.lineno}"
        for path, tree in product.items()
        if path.startswith("fleet/core/")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in CLOCKS
        and isinstance(node.value, ast.Name)
        and node.value.id in {"datetime", "date"}
    ]
    assert wrong == []


def test_each_library_has_one_doorway(imports: Mapping[str, frozenset[str]]) -> None:
    wrong = [
        f"{path} imports {library}; its doorway is {' or '.join(doorways)}"
        for library, doorways in DOORWAYS.items()
        for path, names in imports.items()
        if library in {name.partition(".")[0] for name in names}
        and not any(fnmatch(path, doorway) for doorway in doorways)
    ]
    assert wrong == []


def test_only_declared_libraries_are_imported(root: Path, imports: Mapping[str, frozenset[str]]) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    declared = {_import_name(requirement) for requirement in project["dependencies"]}
    wrong = [
        f"{path} imports {name}"
        for path, names in imports.items()
        for name in sorted({name.partition(".")[0] for name in names})
        if name not in declared | OURS | set(sys.stdlib_module_names)
    ]
    assert wrong == []


def test_imports_are_absolute(product: Mapping[str, ast.Module]) -> None:
    wrong = [
        f"{path}:{node.lineno}"
        for path, tree in product.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert wrong == []


def test_a_wrong_import_would_be_seen() -> None:
    assert not _may_import("fleet.core.plan", "fleet.ports.Planner")
    assert not _may_import("fleet.engine", "worktrees.git.run")
    assert not _may_import("fleet.engine", "fleet.config.load_config")
    assert not _may_import("agents.coder", "worktrees.box")
    assert not _may_import("worktrees.pool", "fleet.app")
    assert not _may_import("fleet.config", "fleet.cli.main")
    assert _may_import("fleet.app", "worktrees.workshop.open_workshop")
    assert _may_import("agents.coder", "fleet.ports.Report")


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _may_import(module: str, name: str) -> bool:
    rule = max((prefix for prefix in MAY_IMPORT if _below(module, prefix)), key=len)
    allowed = MAY_IMPORT[rule]
    if allowed is None:
        return True
    if any(_below(name, outer) for outer in OUTERMOST):
        return False
    return any(_below(name, prefix) for prefix in allowed)


def _below(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(f"{prefix}.")


def _import_name(requirement: str) -> str:
    name = re.split(r"[\s<>=!~\[;]", requirement, maxsplit=1)[0].lower()
    return NOT_LIKE_THEIR_DISTRIBUTION.get(name, name.replace("-", "_"))
