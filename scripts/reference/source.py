"""Reads docstrings below attributes from the source file, because pydantic drops them."""

import ast
import functools
import inspect
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path


@functools.cache
def _classes(path: Path) -> Mapping[str, ast.ClassDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def _class_node(kind: type) -> ast.ClassDef:
    return _classes(Path(inspect.getfile(kind)))[kind.__name__]


def class_doc(kind: type) -> str:
    """Return the docstring of a class on one line. Empty if the class has none."""
    return " ".join((ast.get_docstring(_class_node(kind)) or "").split())


def field_docs(kind: type) -> Mapping[str, str]:
    """Return the docstrings below the attributes of a class, by attribute."""
    body = _class_node(kind).body
    return {
        node.target.id: " ".join(inspect.cleandoc(following.value.value).split())
        for node, following in pairwise(body)
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(following, ast.Expr)
        and isinstance(following.value, ast.Constant)
        and isinstance(following.value.value, str)
    }


def field_types(kind: type) -> Mapping[str, str]:
    """Return the types of the attributes of a class, as written in the source."""
    return {
        node.target.id: ast.unparse(node.annotation)
        for node in _class_node(kind).body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
