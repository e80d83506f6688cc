"""A plan's dependencies as a picture: Mermaid and SVG for files, lines for a terminal. A plan is hostile text."""

from html import escape

from dashboards.safe import safe
from fleet.core.estimates import waves
from fleet.core.plan import Plan

TITLE = 40
WIDE, HIGH, GAP_X, GAP_Y, EDGE = 220, 44, 60, 16, 12
COLOURS = {"low": "#e8f0fe", "medium": "#fff4d6", "high": "#fde2e1"}


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


def svg(plan: Plan) -> str:
    columns = waves(plan)
    places = {
        id_: (EDGE + x * (WIDE + GAP_X), EDGE + y * (HIGH + GAP_Y))
        for x, wave in enumerate(columns)
        for y, id_ in enumerate(wave)
    }
    width = 2 * EDGE + len(columns) * (WIDE + GAP_X) - GAP_X
    height = 2 * EDGE + max(map(len, columns), default=1) * (HIGH + GAP_Y) - GAP_Y
    box = f"0 0 {width} {height}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" font-family="sans-serif" font-size="12">',
        f"<title>{escape(safe(plan.goal, limit=200))}</title>",
    ]
    for spec in plan.subtasks:
        x, y = places[spec.id]
        for need in spec.depends_on:
            from_x, from_y = places[need][0] + WIDE, places[need][1] + HIGH // 2
            middle = (from_x + x) // 2
            parts.append(
                f'<path d="M{from_x} {from_y}C{middle} {from_y} {middle} {y + HIGH // 2} {x} {y + HIGH // 2}" '
                'fill="none" stroke="#888"/>'
            )
    for spec in plan.subtasks:
        x, y = places[spec.id]
        parts.append(
            f'<rect x="{x}" y="{y}" width="{WIDE}" height="{HIGH}" rx="6" fill="{COLOURS[spec.risk]}" stroke="#666"/>'
            f'<text x="{x + 8}" y="{y + 18}" font-weight="bold">{escape(safe(spec.id, limit=30))}</text>'
            f'<text x="{x + 8}" y="{y + 34}">{escape(safe(spec.title, limit=34))}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])
