"""Imports point inwards: a row for each folder. Each third-party library has one doorway."""

import ast
import re
import sys
import tomllib
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatch
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path

import pytest

from tests.house.conftest import nodes
from tests.house.doorways import DOORWAYS, ENVIRONMENT, NOT_LIKE_THEIR_DISTRIBUTION, READS_ENVIRONMENT
from tests.house.rooms import EVERYTHING, MAY_IMPORT
from tests.house.state_readers import READS_STATE

LONGEST_CHAIN = 26
"""Modules, the first and the last one counted. It goes down with every layer that goes."""

OURS = {"fleet", "agents", "worktrees", "dashboards"}

# What any folder may need. The page about the architecture says so once, not in each row.
ANYWHERE = {"fleet.__version__", "fleet.errors", "fleet.runs.crash_points"}

# What the core may use of the standard library: nothing with a file, a clock, a process or chance in it.
PURE = {
    *("__future__", "abc", "bisect", "collections", "contextlib", "copy", "dataclasses", "datetime", "decimal"),
    *("difflib", "enum", "fnmatch", "fractions", "functools", "graphlib", "hashlib", "heapq", "itertools", "json"),
    *("math", "numbers", "operator", "posixpath", "re", "shlex", "statistics", "string", "textwrap", "types", "typing"),
    "unicodedata",
}
NAMES = (ast.ImportFrom, ast.Attribute)
CLOCKS = {"now", "utcnow", "today"}


def test_imports_point_inwards(imports: Mapping[str, frozenset[str]]) -> None:
    wrong = [
        f"{path} imports {name}"
        for path, names in imports.items()
        for name in sorted(names)
        if name.partition(".")[0] in OURS and not _may_import(_folder(path), name)
    ]
    assert wrong == []


def test_no_more_modules_read_the_state_than_did(imports: Mapping[str, frozenset[str]]) -> None:
    """Faces render what `fleet/read` computes."""
    inside = ("fleet/core/", "fleet/engine/", "fleet/read/")
    found = {path for path, names in imports.items() if any(name.startswith("fleet.core.state.") for name in names)}
    assert {path for path in found if not path.startswith(inside)} == set(READS_STATE)


def test_no_room_imports_itself_through_others(imports: Mapping[str, frozenset[str]]) -> None:
    """A room is a folder with those below it: below `fleet/core` and `fleet/features` as below each package."""
    rooms = {_room(folder) for folder in MAY_IMPORT} - {"fleet"}
    below: dict[str, set[str]] = {room: set() for room in rooms}
    for path, names in imports.items():
        if (room := _room(_folder(path))) in rooms:
            found = {_room_of(name, rooms) for name in names if not _is_anywhere(name)}
            below[room] |= found - {room, ""}
    assert list(TopologicalSorter(below).static_order()), "a CycleError names the rooms"


def test_no_chain_of_imports_is_longer_than_it_was(product: Mapping[str, ast.Module]) -> None:
    """From module to module, wherever in it the import is; those for the type checker alone are left out."""
    below = {path: frozenset(_imported_paths(path, tree, product)) for path, tree in product.items()}
    known = dict[str, tuple[str, ...]]()
    longest = max((_longest_chain(path, below, known) for path in below), key=len)
    assert len(longest) <= LONGEST_CHAIN, "\n".join(longest)


def test_the_longest_chain_ends_at_a_circle() -> None:
    below = {"a": frozenset("bc"), "b": frozenset("c"), "c": frozenset("ad"), "d": frozenset[str]()}
    assert _longest_chain("a", below, {}) == ("a", "b", "c", "d")


def test_a_circle_of_rooms_would_be_seen() -> None:
    with pytest.raises(CycleError):
        list(TopologicalSorter({"agents.tools": {"agents.models"}, "agents.models": {"agents.tools"}}).static_order())
    rooms = {"agents", "agents.models", "fleet.core.state"}
    assert _room_of("fleet.core.state.status.Status", rooms) == "fleet.core.state"
    assert _room_of("agents.models.claude.Claude", rooms) == "agents.models"
    assert _room_of("agents.factory.open_agents", rooms) == "agents"


def _room(folder: str) -> str:
    return ".".join(folder.split(".")[: 3 if folder.startswith(("fleet.core", "fleet.features")) else 2])


def _room_of(name: str, rooms: Collection[str]) -> str:
    """The innermost room that a name is in; empty for what is not ours."""
    return max((room for room in rooms if _below(name, room)), key=len, default="")


def _is_anywhere(name: str) -> bool:
    return any(_below(name, each) for each in ANYWHERE)


def test_every_folder_has_a_row_and_every_row_a_folder(imports: Mapping[str, frozenset[str]]) -> None:
    assert {_folder(path) for path in imports} == set(MAY_IMPORT)


def test_the_architecture_page_has_the_same_rows(files: Mapping[str, str]) -> None:
    """The last column names what a folder may import; names that any folder may need are left out there."""
    rooms = files["docs/internals/architecture.md"].partition("## The rooms")[2].partition("### Beside the product")[0]
    cells = re.findall(r"^\| `([\w/]+?)/?` \|.*\| ([^|]+) \|$", rooms, re.MULTILINE)
    shown = {folder.replace("/", "."): cell for folder, cell in cells}
    assert {folder: shown.get(folder) for folder in MAY_IMPORT} == {
        folder: _row_text(row) for folder, row in MAY_IMPORT.items()
    }


def _row_text(row: tuple[str, ...] | None) -> str:
    if row is EVERYTHING:
        return "everything"
    names = sorted(name.replace(".", "/") for name in row if name not in ANYWHERE)
    return ", ".join(f"`{name}`" for name in names) or "nothing"


def test_every_name_in_a_row_is_imported_there(imports: Mapping[str, frozenset[str]]) -> None:
    imported = {folder: set[str]() for folder in MAY_IMPORT}
    for path, names in imports.items():
        imported[_folder(path)] |= names
    unused = [
        f"{folder}: {allowed}"
        for folder, row in MAY_IMPORT.items()
        for allowed in row or ()
        if not any(_below(name, allowed) for name in imported[folder])
    ]
    assert unused == []


def test_every_doorway_is_used(imports: Mapping[str, frozenset[str]]) -> None:
    unused = [
        f"{library}: {doorway}"
        for library, doorways in DOORWAYS.items()
        for doorway in doorways
        if not any(
            fnmatch(path, doorway) and library in {name.partition(".")[0] for name in names}
            for path, names in imports.items()
        )
    ]
    assert unused == []


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
        for node in nodes(tree, ast.Attribute)
        if node.attr in CLOCKS and isinstance(node.value, ast.Name) and node.value.id in {"datetime", "date"}
    ]
    assert wrong == []


def test_only_history_makes_states(product: Mapping[str, ast.Module]) -> None:
    wrong = [
        f"{path}:{node.lineno}"
        for path, tree in product.items()
        if not path.startswith("fleet/core/history/")
        for node in nodes(tree, ast.Call)
        if _makes_a_state(node, core=path.startswith("fleet/core/state/"))
    ]
    assert wrong == []


def _makes_a_state(call: ast.Call, *, core: bool) -> bool:
    """Whether a call makes a state, or changes one: any `replace` where states are described, else one of a `state`."""
    called = call.func.id if isinstance(call.func, ast.Name) else ""
    changed = ast.unparse(call.args[0]) if call.args else ""
    return called == "RunState" or (called == "replace" and (core or "state" in changed.split(".")))


def test_each_library_has_one_doorway(imports: Mapping[str, frozenset[str]]) -> None:
    wrong = [
        f"{path} imports {library}; its doorway is {' or '.join(doorways)}"
        for library, doorways in DOORWAYS.items()
        for path, names in imports.items()
        if library in {name.partition(".")[0] for name in names}
        and not any(fnmatch(path, doorway) for doorway in doorways)
    ]
    assert wrong == []


def test_one_module_reads_the_environment(product: Mapping[str, ast.Module]) -> None:
    readers = {path for path, tree in product.items() if any(map(_names_environment, nodes(tree, *NAMES)))}
    assert readers == set(READS_ENVIRONMENT)


def _names_environment(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "os" and any(alias.name in ENVIRONMENT for alias in node.names)
    return isinstance(node, ast.Attribute) and node.attr in ENVIRONMENT and ast.unparse(node.value) == "os"


def test_a_reader_of_the_environment_would_be_seen() -> None:
    for line in ("import os; os.environ['A']", "import os; os.getenv('A')", "from os import environ"):
        assert any(map(_names_environment, nodes(ast.parse(line), *NAMES)))


def test_one_module_writes_the_version_of_json(product: Mapping[str, ast.Module]) -> None:
    """All other modules print views, whose dump has it."""
    writers = {
        path
        for path, tree in product.items()
        for node in nodes(tree, ast.Dict)
        if any(isinstance(key, ast.Constant) and key.value == "schema_version" for key in node.keys)
    }
    assert writers == {"fleet/read/base_view.py"}


def test_only_declared_libraries_are_imported(root: Path, imports: Mapping[str, frozenset[str]]) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = chain.from_iterable(project["optional-dependencies"].values())
    declared = {_import_name(requirement) for requirement in (*project["dependencies"], *extras)}
    wrong = [
        f"{path} imports {name}"
        for path, names in imports.items()
        for name in sorted({name.partition(".")[0] for name in names})
        if name not in declared | OURS | set(sys.stdlib_module_names)
    ]
    assert wrong == []


def test_imports_are_absolute(product: Mapping[str, ast.Module]) -> None:
    wrong = [
        f"{path}:{node.lineno}" for path, tree in product.items() for node in nodes(tree, ast.ImportFrom) if node.level
    ]
    assert wrong == []


def test_a_wrong_import_would_be_seen() -> None:
    assert not _may_import("fleet.core.plans", "fleet.ports.agents.Planner")
    assert not _may_import("fleet.core.plans", "fleet.core.facts.facts")
    assert not _may_import("fleet.engine", "worktrees.git.program.Git")
    assert not _may_import("fleet.engine", "fleet.config.load.load_config")
    assert not _may_import("agents.workers", "worktrees.sandbox.box")
    assert not _may_import("worktrees.git", "fleet.app.fleet")
    assert not _may_import("fleet.config", "fleet.cli.entry")
    assert _may_import("fleet.app", "worktrees.leases.run_worktrees.open_worktrees")
    assert _may_import("agents.workers", "fleet.ports.agents.WorkerBrief")


def _folder(path: str) -> str:
    return path.rpartition("/")[0].replace("/", ".")


def _may_import(folder: str, name: str) -> bool:
    allowed = MAY_IMPORT[folder]
    return allowed is None or any(_below(name, prefix) for prefix in (folder, *allowed))


def _below(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(f"{prefix}.")


def _import_name(requirement: str) -> str:
    name = re.split(r"[\s<>=!~\[;]", requirement, maxsplit=1)[0].lower()
    return NOT_LIKE_THEIR_DISTRIBUTION.get(name, name.replace("-", "_"))


def _imported_paths(path: str, tree: ast.Module, product: Mapping[str, ast.Module]) -> Iterator[str]:
    """The other files that a module imports."""
    for node in _without_types(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            module = name.replace(".", "/")
            owner = module.rpartition("/")[0]
            candidates = (f"{module}.py", f"{module}/__init__.py", f"{owner}.py", f"{owner}/__init__.py")
            found = next((each for each in candidates if each in product), path)
            if found != path:
                yield found


def _without_types(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes that are run."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
            yield child
            yield from _without_types(child)


def _longest_chain(
    path: str, below: Mapping[str, frozenset[str]], known: dict[str, tuple[str, ...]], above: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """The longest chain from a module on; one that is above it begins no chain again."""
    if path not in known:
        chains = (
            _longest_chain(each, below, known, (*above, path)) for each in sorted(below[path]) if each not in above
        )
        known[path] = (path, *max(chains, key=len, default=()))
    return known[path]
