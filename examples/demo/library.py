"""The library that the demo's fleet writes: its modules, each with its stub, its code and its specification.

The texts are beside this file: `modules/` holds 17 complete modules, `families/` thirteen templates and, in
`rows.jsonl`, the 104 small modules that are generated from them. Their tests expect published values (check values of
checksums, definitions of units), not computed ones. Subtasks and scripts are not known here.
"""

import ast
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template

_HERE = Path(__file__).resolve().parent
LARGE, SMALL = 120, 16

NEEDS: dict[str, tuple[str, ...]] = {
    "slugs": (), "wrap": (), "distance": (), "roman": (), "dialect": (), "tokens": (),
    "lru": (), "diff": (), "width": (), "numbers": (), "cases": (), "entities": (),
    "table": ("width", "numbers"), "outline": ("slugs", "wrap"),
    "parser": ("tokens",), "renderer": ("parser", "lru", "entities"),
    "cli": ("diff", "outline", "renderer", "table"),
}  # fmt: skip

MISTAKES: dict[str, tuple[str, str]] = {
    "roman": ('((900, "CM"), (400, "CD"), (90, "XC"), (40, "XL"), (9, "IX"), (4, "IV"))', "()"),
    "units": ("FACTORS[source] / FACTORS[target]", "FACTORS[target] / FACTORS[source]"),
    "polygonal": ("(_SIDES - 4) * index)", "(_SIDES - 3) * index)"),
    "patterns": ("_PATTERN.fullmatch(text)", "_PATTERN.match(text)"),
    "recurrence": ("window = [*window[1:],", "window = [*window[:-1],"),
}
"""Mistakes of a careless worker, by module or family."""


@dataclass(frozen=True, slots=True)
class Module:
    """One module of the library."""

    name: str
    family: str
    says: str
    code: str
    test: str
    needs: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        return f"textkit/{self.name}.py"

    @property
    def test_path(self) -> str:
        return f"tests/test_{self.name}.py"

    @property
    def stub(self) -> str:
        return stub_of(self.code)

    @property
    def mistaken(self) -> str:
        """The code with a mistake in it. Raises `KeyError` if none is known."""
        right, wrong = MISTAKES[self.name if self.name in MISTAKES else self.family]
        if right not in self.code:
            raise KeyError(self.name)
        return self.code.replace(right, wrong)


def library(size: int) -> tuple[Module, ...]:
    """The modules for a demo of `size` subtasks, in an order in which they can be written."""
    core = tuple(_core_module(name, needs) for name, needs in NEEDS.items())
    return core if size <= SMALL else core + tuple(_family_modules())[: size - SMALL]


def text(name: str) -> str:
    """One of the library's own files."""
    return (_HERE / "modules" / f"{name}.py.txt").read_text(encoding="utf-8")


def _core_module(name: str, needs: tuple[str, ...]) -> Module:
    return _module(name, "core", text(name), text(f"test_{name}"), needs)


def _family_modules() -> Iterator[Module]:
    for line in (_HERE / "families" / "rows.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        yield _family_module(row["family"], row["name"], row["values"], row["code"])


def _family_module(family: str, name: str, values: Mapping[str, object], code: Mapping[str, str]) -> Module:
    """The family's template, filled in with `code` verbatim and with the representations of `values`."""
    filled = {key: repr(value) for key, value in values.items()} | dict(code) | {"name": name}
    both = [
        Template((_HERE / "families" / f"{file}.py.txt").read_text(encoding="utf-8")).substitute(filled)
        for file in (family, f"test_{family}")
    ]
    return _module(name, family, both[0], both[1], ())


def _module(name: str, family: str, code: str, test: str, needs: tuple[str, ...]) -> Module:
    says = (ast.get_docstring(ast.parse(code)) or "").splitlines()[0].rstrip(".")
    return Module(name, family, says, code, test, needs)


def stub_of(code: str) -> str:
    """The public interface of a module: signatures and docstrings without code."""
    tree = ast.parse(code)
    tree.body = [node for each in tree.body if (node := _stubbed(each)) is not None]
    return ast.unparse(tree) + "\n"


def _stubbed(node: ast.stmt) -> ast.stmt | None:
    if isinstance(node, ast.FunctionDef):
        return None if node.name.startswith("_") and not node.name.endswith("__") else _emptied(node)
    if isinstance(node, ast.ClassDef):
        node.body = [inner for each in node.body if (inner := _stubbed(each)) is not None]
        return node
    if isinstance(node, ast.If) or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith("_")):
        return None
    private = isinstance(node, ast.AnnAssign) and ast.unparse(node.target).startswith("_")
    return None if private else node


def _emptied(function: ast.FunctionDef) -> ast.FunctionDef:
    docstring = function.body[:1] if ast.get_docstring(function) is not None else []
    function.body = [*docstring, ast.parse("raise NotImplementedError").body[0]]
    return function
