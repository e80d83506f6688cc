"""A plan's dependencies in text: lines for a terminal, Mermaid for files. A plan is hostile text."""

from dashboards.safe import safe
from fleet.core.estimates import waves
from fleet.core.plan import Plan

TITLE = 40


def graph_lines(plan: Plan) -> list[str]:
    """By waves: each begins when what it needs of those before it has landed."""
    lines = []
    for number, wave in enumerate(waves(plan), start=1):
        lines.append(f"wave {number}")
        for id_ in wave:
            spec = plan.subtask(id_)
            needs = f"  ← {', '.join(map(safe, spec.depends_on))}" if spec and spec.depends_on else ""
            lines.append(f"  {safe(id_):<20} {safe(spec.title if spec else '', limit=TITLE)}{needs}")
    return lines


def mermaid(plan: Plan) -> str:
    names = {id_: f"n{number}" for number, id_ in enumerate(plan.ids)}
    lines = ["graph LR"]
    for spec in plan.subtasks:
        label = _plain(f"{spec.id}: {safe(spec.title, limit=TITLE)}")
        lines.append(f'  {names[spec.id]}["{label}"]')
    lines += [f"  {names[need]} --> {names[spec.id]}" for spec in plan.subtasks for need in spec.depends_on]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """As Mermaid's own character codes: nothing in a label is markup."""
    return "".join(one if one.isalnum() or one in " .,:-_/" else f"#{ord(one)};" for one in text)
