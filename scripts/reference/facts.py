"""Generates the reference of facts from their classes."""

import re
from collections.abc import Iterator, Mapping
from typing import get_args

from pydantic import BaseModel

from fleet.core.base.usage import Cost, Usage
from fleet.core.facts import facts
from fleet.core.plans.revision import Ask, Drop, Retry, Revision, Split
from scripts.reference.page import code, table
from scripts.reference.shapes import default_text
from scripts.reference.source import class_doc, field_docs, field_types

PARTS: tuple[type[BaseModel], ...] = (
    facts.Failure,
    facts.Report,
    facts.CheckRun,
    facts.SetupRun,
    facts.Member,
    facts.Ejected,
    facts.SubtaskEstimate,
    facts.Spread,
    facts.Forecast,
    facts.Expectation,
    facts.Assumed,
    facts.CallTally,
    Revision,
    Split,
    Retry,
    Drop,
    Ask,
    Usage,
    Cost,
)
"""Parts of facts, in the order of the page."""
WORDS = ("FailureKind", "Strategy", "Remedy", "Role", "ServiceCondition", "SetupNetwork", "Ending")
"""Types whose values are listed at the end of the page."""
_PLAIN: Mapping[str, str] = {
    "str": "text",
    "int": "whole number",
    "float": "number",
    "bool": "`true` or `false`",
    "JsonValue": "anything",
    "object": "anything",
}
SAME = {"at", "kind"}
"""Fields of every fact, which the page describes once."""


def content() -> str:
    return "\n\n".join(
        (
            *(_section(f"`{fact.model_fields['kind'].default}`", fact) for fact in get_args(facts.Fact)),
            "## Parts of facts",
            *(_section(part.__name__, part) for part in PARTS),
            "## Lists of words",
            table(("word", "one of"), _words()),
        )
    )


def shapes() -> tuple[type[BaseModel], ...]:
    """Return all facts and parts of facts."""
    return (*get_args(facts.Fact), *PARTS)


def rows(kind: type[BaseModel]) -> list[tuple[str, str, str, str]]:
    """Return a table row for each field of a fact."""
    types, docs = field_types(kind), field_docs(kind)
    return [
        (
            code(name),
            type_words(types[name]),
            default_text(field),
            field.description or docs.get(name, ""),
        )
        for name, field in kind.model_fields.items()
        if name in types and (name not in SAME or kind in PARTS) and not field.exclude
    ]


def _section(heading: str, kind: type[BaseModel]) -> str:
    found = rows(kind)
    fields = "\n\n" + table(("field", "type", "default", "meaning"), found) if found else ""
    return f"### {heading}\n\n{class_doc(kind)}{fields}"


def type_words(annotation: str) -> str:
    """Describe a Python type in terms of JSON: `tuple[Sha, ...]` becomes "list of `Sha`"."""
    if found := re.fullmatch(r"(.*) \| None", annotation):
        return f"{type_words(found[1])} or null"
    if found := re.fullmatch(r"tuple\[(.*), \.\.\.\]", annotation):
        return f"list of {type_words(found[1])}"
    if found := re.fullmatch(r"(?:dict|Mapping)\[\w+, (.*)\]", annotation):
        return f"table of {type_words(found[1])}"
    if found := re.fullmatch(r"Literal\[(.*)\]", annotation):
        return ", ".join(code(word.strip("'")) for word in found[1].split(", "))
    return _PLAIN.get(annotation, code(annotation))


def _words() -> Iterator[tuple[str, str]]:
    for name in WORDS:
        yield code(name), ", ".join(map(code, get_args(getattr(facts, name))))
