"""A plan's dependencies as a picture: SVG, drawn by hand, so that no browser and no library is needed for it.

One column a wave. A line that passes a column has a place of its own there, so that nothing runs behind a box. What is
needed by way of another is not drawn a second time. A plan is hostile text.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from statistics import fmean

from dashboards.safe import safe
from fleet.core.estimates import waves
from fleet.core.ids import SubtaskId
from fleet.core.plan import Plan, Subtask

WIDE, HIGH, LANE, GAP_X, GAP_Y, EDGE = 220, 44, 6, 56, 14, 14
COLOURS = {"low": "#e8f0fe", "medium": "#fff4d6", "high": "#fde2e1"}
TITLE, TOLD = 34, 300
_LOOK = 'font-family="sans-serif" font-size="12" style="background:#fff"'
_ARROW = (
    '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0L8 4L0 8z" fill="#777"/></marker></defs>'
)

Line = tuple[SubtaskId, SubtaskId]
"""From what is needed to what needs it."""
Item = SubtaskId | Line
"""What has a place in a column: a box, or a line on its way through."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """Where everything is."""

    corners: Mapping[SubtaskId, tuple[int, int]]
    lines: Mapping[Line, tuple[tuple[int, int], ...]]
    """The left ends of the stretches of each line that cross a column."""
    width: int
    height: int


def svg(plan: Plan) -> str:
    drawing = _drawn(plan)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {drawing.width} {drawing.height}" {_LOOK}>'
    parts = [head, f"<title>{escape(safe(plan.goal, limit=TOLD))}</title>", _ARROW]
    parts += (_line(drawing, line) for line in drawing.lines)
    parts += (_box(subtask, *drawing.corners[subtask.id]) for subtask in plan.subtasks)
    return "\n".join([*parts, "</svg>", ""])


def _box(subtask: Subtask, x: int, y: int) -> str:
    told = f"{subtask.worker}, risk {subtask.risk}: {subtask.goal}"
    return (
        f'<rect x="{x}" y="{y}" width="{WIDE}" height="{HIGH}" rx="6" fill="{COLOURS[subtask.risk]}" stroke="#666">'
        f"<title>{escape(safe(told, limit=TOLD))}</title></rect>"
        f'<text x="{x + 8}" y="{y + 18}" font-weight="bold">{escape(safe(subtask.id, limit=30))}</text>'
        f'<text x="{x + 8}" y="{y + 34}">{escape(safe(subtask.title, limit=TITLE))}</text>'
    )


def _line(drawing: Drawing, line: Line) -> str:
    """Level through each column, and a bow between two."""
    x, y = drawing.corners[line[0]]
    x, y = x + WIDE, y + HIGH // 2
    end_x, end_y = drawing.corners[line[1]]
    way = f"M{x} {y}"
    for next_x, next_y in (*drawing.lines[line], (end_x, end_y + HIGH // 2)):
        middle = (x + next_x) // 2
        way += f"C{middle} {y} {middle} {next_y} {next_x} {next_y}"
        x, y = next_x, next_y
        if x != end_x:
            x += WIDE
            way += f"H{x}"
    return f'<path d="{way}" fill="none" stroke="#777" marker-end="url(#end)"/>'


# ---- the places -----------------------------------------------------------------------------------------------------


def _drawn(plan: Plan) -> Drawing:
    boxes = waves(plan)
    column = {id_: number for number, wave in enumerate(boxes) for id_ in wave}
    needs = {subtask.id: subtask.depends_on for subtask in plan.subtasks}
    lines = [(need, id_) for id_ in plan.ids for need in _direct(needs, id_) if need in column]
    columns: list[list[Item]] = [list(wave) for wave in boxes]
    for line in lines:
        for between in range(column[line[0]] + 1, column[line[1]]):
            columns[between].append(line)
    corners: dict[SubtaskId, tuple[int, int]] = {}
    stretches: dict[Line, tuple[tuple[int, int], ...]] = dict.fromkeys(lines, ())
    heights, tall = dict[Item, float](), 0
    before: dict[SubtaskId, list[Line]] = {}
    for line in lines:
        before.setdefault(line[1], []).append(line)
    for number, items in enumerate(columns):
        x, y = EDGE + number * (WIDE + GAP_X), EDGE
        for item in sorted(items, key=lambda item: _wanted(item, before, heights)):
            if isinstance(item, str):
                corners[item] = (x, y)
            else:
                stretches[item] = (*stretches[item], (x, y + LANE // 2))
            high = HIGH if isinstance(item, str) else LANE
            heights[item] = y + high / 2
            y += high + GAP_Y
        tall = max(tall, y - GAP_Y)
    width = 2 * EDGE + len(columns) * (WIDE + GAP_X) - GAP_X
    return Drawing(corners, stretches, max(width, 2 * EDGE), tall + EDGE)


def _wanted(item: Item, before: Mapping[SubtaskId, list[Line]], heights: Mapping[Item, float]) -> float:
    """How high something wants to stand: as what leads to it does."""
    coming = before.get(item, []) if isinstance(item, str) else [item]
    return fmean([heights.get(line, heights.get(line[0], 0.0)) for line in coming] or [0.0])


def _direct(needs: Mapping[SubtaskId, tuple[SubtaskId, ...]], id_: SubtaskId) -> list[SubtaskId]:
    """What it needs, without what others that it needs do need already."""
    implied: set[SubtaskId] = set()
    pending = [above for need in needs[id_] for above in needs.get(need, ())]
    while pending:
        here = pending.pop()
        if here not in implied:
            implied.add(here)
            pending += needs.get(here, ())
    return [need for need in dict.fromkeys(needs[id_]) if need not in implied]
