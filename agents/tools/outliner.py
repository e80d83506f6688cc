"""A program that reads sources from stdin and lists the definitions in their syntax trees.

The parsers are written in C and the sources are untrusted, so they run here instead of in the manager: in a process
with limits on memory, time and files, which may crash. It does not import other modules of fleet. `reading.py` starts
it.

In: one JSON object of path to source. Out: a JSON line for each, `[path, [[name, form, line, owner], …]]`, where `form`
is "()" for a callable and `owner` the index of the definition around it, or -1.
"""

import json
import resource
import signal
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

LANGUAGES = {
    **dict.fromkeys((".py", ".pyi"), ("tree_sitter_python", "language")),
    **dict.fromkeys((".js", ".jsx", ".mjs", ".cjs"), ("tree_sitter_javascript", "language")),
    **dict.fromkeys((".ts", ".mts", ".cts"), ("tree_sitter_typescript", "language_typescript")),
    ".tsx": ("tree_sitter_typescript", "language_tsx"),
    ".go": ("tree_sitter_go", "language"),
    ".rs": ("tree_sitter_rust", "language"),
    ".java": ("tree_sitter_java", "language"),
    **dict.fromkeys((".c", ".h"), ("tree_sitter_c", "language")),
    **dict.fromkeys((".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx"), ("tree_sitter_cpp", "language")),
    ".cs": ("tree_sitter_c_sharp", "language"),
    ".rb": ("tree_sitter_ruby", "language"),
    ".php": ("tree_sitter_php", "language_php"),
}
"""The module and function of the grammar, by file suffix."""


def _types(names: str) -> frozenset[str]:
    return frozenset(names.split())


CALLED = _types(
    "function_definition function_declaration generator_function_declaration function_item function_signature_item "
    "method_definition method_declaration method_elem constructor_declaration method singleton_method "
    "method_signature macro_definition"
)
HOLDERS = _types(
    "class_definition class_declaration abstract_class_declaration interface_declaration class class_specifier "
    "struct_specifier trait_item impl_item mod_item module internal_module namespace_definition "
    "namespace_declaration trait_declaration struct_declaration record_declaration enum_declaration type_spec"
)
TYPES = _types("type_alias_declaration struct_item enum_item union_item enum_specifier type_definition")
THROUGH = _types(
    "program source_file translation_unit compilation_unit export_statement decorated_definition block class_body "
    "interface_body enum_body declaration_list body_statement statement_block field_declaration_list "
    "template_declaration type_declaration expression_statement interface_type lexical_declaration "
    "linkage_specification preproc_ifdef preproc_if preproc_else ambient_declaration "
    "file_scoped_namespace_declaration enum_declaration_list"
)
"""Nodes that may contain definitions. Function bodies are not searched."""
FUNCTIONS = frozenset({"arrow_function", "function_expression", "function"})
MEMORY, SECONDS = 1024**3, 10
MOST = 2_000  # definitions per file
LONGEST = 80  # characters of a name

Definition = tuple[str, str, int, int]


def definitions(root: "Node") -> list[Definition]:
    """Return the definitions of a tree in source order. Iterative, because hostile sources may be nested deeply."""
    result: list[Definition] = []
    stack: list[tuple[Node, int]] = [(root, -1)]
    while stack and len(result) < MOST:
        node, owner = stack.pop()
        name = _defined_name(node)
        if name is not None:
            form = "()" if node.type in CALLED or node.type == "variable_declarator" else ""
            result.append((name[:LONGEST], form, node.start_point[0] + 1, owner))
            owner = len(result) - 1
        if node is root or (node.type in HOLDERS if name is not None else node.type in THROUGH):
            stack += [(child, owner) for child in reversed(node.named_children)]
    return result


def _defined_name(node: "Node") -> str | None:
    """Return the name of a definition; None for other nodes."""
    kind = node.type
    if kind == "variable_declarator":
        value = node.child_by_field_name("value")
        return _text(node.child_by_field_name("name")) if value is not None and value.type in FUNCTIONS else None
    if kind not in CALLED | HOLDERS | TYPES:
        return None
    if kind.endswith("_specifier") and node.child_by_field_name("body") is None:
        return None  # a reference to the type
    if kind == "impl_item":
        return f"impl {_text(node.child_by_field_name('type'))}"
    name = node.child_by_field_name("name")
    inner: Node | None = node
    while name is None and inner is not None:  # in C the name is nested in pointers and parameters
        inner = inner.child_by_field_name("declarator")
        name = inner if inner is not None and inner.child_by_field_name("declarator") is None else None
    text = _text(name)
    receiver = node.child_by_field_name("receiver")
    if receiver is not None and text:
        owner = (_text(receiver) or "").strip("()").split()[-1:]
        return f"{owner[0].lstrip('*')}.{text}" if owner else text
    return text


def _text(node: "Node | None") -> str | None:
    return " ".join(node.text.decode("utf-8", "replace").split()) or None if node is not None and node.text else None


def outlined(sources: dict[str, str]) -> Iterator[tuple[str, list[Definition]]]:
    parsers: dict[tuple[str, str], Parser] = {}
    for path, source in sources.items():
        grammar = LANGUAGES[PurePosixPath(path).suffix.lower()]
        if grammar not in parsers:
            parsers[grammar] = _parser(*grammar)
        yield path, definitions(parsers[grammar].parse(source.encode("utf-8", "replace")).root_node)


def _parser(module: str, function: str) -> "Parser":
    from tree_sitter import Language, Parser  # noqa: PLC0415 - only this process loads it

    return Parser(Language(getattr(import_module(module), function)()))


def main() -> None:
    for limit, value in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_CPU, SECONDS),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
    ):
        resource.setrlimit(limit, (value, value))
    signal.alarm(SECONDS)  # the parent process may have exited
    for path, defined in outlined(json.load(sys.stdin)):
        sys.stdout.write(json.dumps([path, defined]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
