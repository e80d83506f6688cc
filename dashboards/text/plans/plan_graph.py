"""The dependencies of a plan: as lines for a terminal, as Mermaid and DOT for files. A plan is untrusted text."""

from collections.abc import Callable, Mapping

from dashboards.text.safe import safe
from fleet.core.plans.dependencies import waves
from fleet.core.plans.plan import Plan

TITLE = 40


def graph_lines(plan: Plan) -> list[str]:
    """The subtasks in waves: a subtask depends only on those of earlier waves."""
    lines = []
    for number, wave in enumerate(waves(plan), start=1):
        lines.append(f"wave {number}")
        for id_ in wave:
            spec = plan.subtask(id_)
            needs = f"  ← {', '.join(map(safe, spec.depends_on))}" if spec and spec.depends_on else ""
            lines.append(f"  {safe(id_):<20} {safe(spec.title if spec else '', limit=TITLE)}{needs}")
    return lines


def mermaid(plan: Plan) -> str:
    nodes = [f'  {name}["{_escaped(label, "#{};")}"]' for name, label in _nodes(plan)]
    edges = [f"  {need} --> {name}" for need, name in _edges(plan)]
    return "\n".join(["graph LR", *nodes, *edges]) + "\n"


def dot(plan: Plan) -> str:
    nodes = [f'  {name} [label="{_escaped(label, "&#{};")}"];' for name, label in _nodes(plan)]
    edges = [f"  {need} -> {name};" for need, name in _edges(plan)]
    return "\n".join(["digraph plan {", "  rankdir=LR;", "  node [shape=box];", *nodes, *edges, "}"]) + "\n"


FORMATS: Mapping[str, Callable[[Plan], str]] = {".mmd": mermaid, ".dot": dot, ".gv": dot}
"""The formats of a graph by the suffix of its file."""


def _nodes(plan: Plan) -> list[tuple[str, str]]:
    return [(f"n{number}", f"{s.id}: {safe(s.title, limit=TITLE)}") for number, s in enumerate(plan.subtasks)]


def _edges(plan: Plan) -> list[tuple[str, str]]:
    names = {id_: f"n{number}" for number, id_ in enumerate(plan.ids)}
    return [(names[need], names[spec.id]) for spec in plan.subtasks for need in spec.depends_on]


def _escaped(label: str, code: str) -> str:
    """Replaces what could be markup by character codes."""
    return "".join(char if char.isalnum() or char in " .,:-_/" else code.format(ord(char)) for char in label)
