"""The plan file, from the shapes that read and write it."""

from pydantic import BaseModel

from fleet.core.parameters import Parameter
from fleet.core.plan import Criterion, Estimate, Plan, Subtask
from scripts.reference.page import code, table
from scripts.reference.shapes import default_of, kind_of
from scripts.reference.source import said_of, said_of_fields

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


def made() -> str:
    return "\n\n".join(_section(kind, heading) for kind, heading in HEADINGS.items())


def _section(kind: type[BaseModel], heading: str) -> str:
    below = said_of_fields(kind)
    rows = [
        (code(name), kind_of(field, _NAMED), default_of(field), field.description or below.get(name, ""))
        for name, field in kind.model_fields.items()
    ]
    return f"### {heading}\n\n{said_of(kind)}\n\n{table(('key', 'value', 'default', 'meaning'), rows)}"
