"""Generates the reference of the plan file from its models."""

from pydantic import BaseModel

from fleet.core.plans.parameters import Parameter
from fleet.core.plans.plan import Criterion, Estimate, Plan, Subtask
from scripts.reference.page import code, table
from scripts.reference.shapes import default_text, type_text
from scripts.reference.source import class_doc, field_docs

HEADINGS: dict[type[BaseModel], str] = {
    Plan: "The plan",
    Subtask: "A subtask",
    Criterion: "A criterion",
    Estimate: "An estimate",
    Parameter: "A parameter",
}
_NAMED: dict[type, str] = {
    kind: f"[{heading.split(' ', 1)[1]}](#{heading.lower().replace(' ', '-')})" for kind, heading in HEADINGS.items()
}


def content() -> str:
    return "\n\n".join(_section(kind, heading) for kind, heading in HEADINGS.items())


def _section(kind: type[BaseModel], heading: str) -> str:
    below = field_docs(kind)
    rows = [
        (code(name), type_text(field, _NAMED), default_text(field), field.description or below.get(name, ""))
        for name, field in kind.model_fields.items()
    ]
    return f"### {heading}\n\n{class_doc(kind)}\n\n{table(('key', 'value', 'default', 'meaning'), rows)}"
