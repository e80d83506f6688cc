"""Charts for pages and reports, as SVG without scripts: lines and bars over time, and the plan as a graph.

Each uses the colors of the page and has a text alternative. All texts are escaped.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import isqrt

from markupsafe import Markup

from dashboards.text.formats import counted, duration, money
from dashboards.text.safe import safe
from fleet.core.base.ids import SubtaskId
from fleet.read.report_data import PlanNode, Point
from fleet.read.run_view import SubtaskStatus

WIDTH, HEIGHT = 720, 210
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 10, 24
ROW, LABEL = 20, 190
MOST_POINTS = 300
TICKS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400, 604_800)
MOST_TICKS = 8


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart for the macro `figure`."""

    title: str
    summary: str
    """The text alternative."""
    width: int
    height: int
    drawn: Markup
    key: Sequence[tuple[str, str]] = ()
    """The legend: the class of a line or color, with its label."""
    note: str = ""
    has_links: bool = False


def _svg(text: str, *values: object) -> Markup:
    """Format a part of a chart. Values are escaped."""
    return Markup(text).format(*values)  # noqa: S704 - a constant


def _join(parts: Iterable[str]) -> Markup:
    return Markup().join(parts)


# ---- lines over time -------------------------------------------------------------------------------------------------


def chart(
    title: str,
    summary: str,
    lines: Mapping[str, Sequence[Point]],
    seconds: float,
    *,
    dollars: bool = False,
    marks: Sequence[float] = (),
) -> Picture:
    """Draw step lines: a value holds until the next one. Marks show when the run was resumed."""
    end = max(seconds, *(at for points in lines.values() for at, _ in points[-1:]), 1.0)
    top = _axis_end(max((value for points in lines.values() for _, value in points), default=0.0))
    scale_x, scale_y = (WIDTH - LEFT - RIGHT) / end, (HEIGHT - TOP - BOTTOM) / top
    parts = [_x_axis(end, LEFT, scale_x, HEIGHT)]
    for value in (0.0, top / 2, top):
        y = HEIGHT - BOTTOM - value * scale_y
        parts.append(_svg('<path class="grid" d="M{} {:.1f}H{}"/>', LEFT, y, WIDTH - RIGHT))
        parts.append(_text(LEFT - 6, y + 4, "end", money(value) if dollars else f"{value:g}"))
    parts += [_svg('<path class="mark" d="M{:.1f} {}V{}"/>', LEFT + at * scale_x, TOP, HEIGHT - BOTTOM) for at in marks]
    for index, points in enumerate(lines.values()):
        places = [(LEFT + at * scale_x, HEIGHT - BOTTOM - value * scale_y) for at, value in thinned(points, end)]
        drawn = _svg('<path class="line l{}" d="{}H{:.1f}"/>', index % 5, _path(places), LEFT + seconds * scale_x)
        parts.append(drawn)
    key = [(f"line l{index % 5}", name) for index, name in enumerate(lines)] if len(lines) > 1 else []
    return Picture(title, summary, WIDTH, HEIGHT, _join(parts), key)


def thinned(points: Sequence[Point], seconds: float) -> Sequence[Point]:
    """Reduce the points for a chart to the highest and the last one of each column."""
    if len(points) <= MOST_POINTS:
        return points
    groups: dict[int, list[Point]] = {}
    for point in points:
        groups.setdefault(int(point[0] / seconds * MOST_POINTS / 2), []).append(point)
    peaks = (sorted({max(group, key=lambda point: point[1]), group[-1]}) for group in groups.values())
    return [point for group in peaks for point in group]


def columns(points: Sequence[Point], seconds: float, count: int) -> list[float]:
    """The highest value in each of `count` equal parts of the time."""
    values, last, index = [], 0.0, 0
    for column in range(count if points and seconds > 0 else 0):
        highest = last
        while index < len(points) and points[index][0] <= (column + 1) * seconds / count:
            last = points[index][1]
            highest, index = max(highest, last), index + 1
        values.append(highest)
    return values


def _path(places: Sequence[Point]) -> str:
    if not places:
        return f"M{LEFT} {HEIGHT - BOTTOM}"
    (x, y), *rest = places
    return f"M{x:.1f} {y:.1f}" + "".join(f"H{to:.1f}V{value:.1f}" for to, value in rest)


def _text(x: float, y: float, anchor: str, text: str) -> Markup:
    return _svg('<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>', x, y, anchor, text)


def _x_axis(seconds: float, left: int, scale: float, height: int) -> Markup:
    step = next((tick for tick in TICKS_S if seconds / tick <= MOST_TICKS), int(seconds / MOST_TICKS))
    texts = [
        _text(left + tick * scale, height - 6, "middle", duration(tick))
        for tick in range(0, int(seconds) + 1, step)
        if left + tick * scale < WIDTH - RIGHT - 10 or tick == 0
    ]
    return _join([_svg('<path class="axis" d="M{} {}H{}"/>', left, height - BOTTOM, WIDTH - RIGHT), *texts])


def _axis_end(value: float) -> float:
    """A round number of at least `value`."""
    if value <= 0:
        return 1.0
    size = 10.0 ** len(str(int(value))) / 10 if value >= 1 else 0.0001
    while size * 10 < value:
        size *= 10
    return next(size * step for step in (1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10, 20) if size * step >= value)


# ---- bars over time --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChartSpan:
    """A bar in a row."""

    tone: str
    from_s: float
    to_s: float | None
    title: str = ""


def spans(
    title: str,
    summary: str,
    rows: Sequence[tuple[str, Sequence[ChartSpan]]],
    seconds: float,
    *,
    key: Sequence[tuple[str, str]] = (),
    note: str = "",
) -> Picture:
    """Draw rows of labeled bars."""
    end = max(seconds, *(span.to_s or 0.0 for _, row in rows for span in row), 1.0)
    height, scale = TOP + ROW * len(rows) + BOTTOM, (WIDTH - LABEL - RIGHT) / end
    parts = [_x_axis(end, LABEL, scale, height)]
    for number, (label, row) in enumerate(rows):
        y = TOP + ROW * number
        parts.append(_text(LABEL - 6, y + 14, "end", label))
        parts += [_bar(span, y, scale, end) for span in row]
    return Picture(title, summary, WIDTH, height, _join(parts), key, note)


def _bar(span: ChartSpan, y: int, scale: float, end: float) -> Markup:
    width = max(3.0, ((span.to_s if span.to_s is not None else end) - span.from_s) * scale)
    title = _svg("<title>{}</title>", span.title) if span.title else ""
    drawn = '<rect class="{}" x="{:.1f}" y="{}" width="{:.1f}" height="{}" rx="3">{}</rect>'
    return _svg(drawn, span.tone, LABEL + span.from_s * scale, y + 4, width, ROW - 8, title)


# ---- the plan --------------------------------------------------------------------------------------------------------
# Waves from left to right, subtasks in the color of their status, lines to their dependencies.


LABELLED = 60  # nodes with labels and lines (in a larger plan, each area is a single node)
DRAWN = 1_000  # nodes drawn at all (for a larger plan, the graph shows the progress of each wave)
WAVES = 40  # rows for the waves of such a plan
NODE, GAP = 150, 46  # widths of a node, and of the space for lines
GRAPH_ROW, GRAPH_TOP = 26, 10
SQUARE, SQUARES = 14, 12  # size of a square, and minimum number in a column
GRAPH_LABEL, BAR = 130, 480  # widths of a label, and of the longest bar
TONES: dict[SubtaskStatus, str] = {
    "merged": "good",
    "failed": "bad",
    "blocked": "bad",
    "escalated": "open",
    "running": "busy",
    "verifying": "busy",
    "landing": "busy",
}
"""The tone of each status of a subtask. All others are `rest`."""
GRAPH_TONES = {"good": "landed", "busy": "running", "open": "waiting for a person", "bad": "failed", "rest": "to come"}
"""The labels of the tones, in their order in a bar."""
Link = Callable[[SubtaskId], str]


def plan_graph(plan: Sequence[Sequence[PlanNode]], link: Link | None = None) -> Picture:
    """Draw the waves of a plan in a form that suits their size."""
    total = sum(map(len, plan))
    summary = _summary(total, len(plan))
    notes: dict[SubtaskId, str] = {}
    if total > LABELLED and any(node.area is not None for node in chain(*plan)):
        notes = _areas(plan)
        plan = [outer for wave in plan if (outer := [node for node in wave if node.area is None])]
        summary += f" {counted(len(notes), 'area')}, with the number of landed subtasks in each."
    drawn = sum(map(len, plan))
    if drawn > DRAWN:
        return _wave_bars(summary, [Counter(_tone(node) for node in wave) for wave in plan])
    return _squares(summary, plan) if drawn > LABELLED else _boxes(summary, plan, notes, link)


def wave_graph(counts: Sequence[Counter[str]]) -> Picture:
    """Draw a plan that is too large for nodes, from the counts of subtasks by wave and tone."""
    return _wave_bars(_summary(sum(each.total() for each in counts), len(counts)), counts)


def _tone(node: PlanNode) -> str:
    return TONES.get(node.status, "rest")


def _areas(plan: Sequence[Sequence[PlanNode]]) -> dict[SubtaskId, str]:
    """The number of landed subtasks in each area of the run's planner."""
    area = {node.id: node.area for node in chain(*plan)}
    done, total = Counter[SubtaskId](), Counter[SubtaskId]()
    for node in chain(*plan):
        top = node.area
        while top is not None and area.get(top) is not None:
            top = area[top]
        if top is not None:
            total[top] += 1
            done[top] += node.status == "merged"
    return {id_: f"{done[id_]}/{number}" for id_, number in total.items()}


def _summary(subtasks: int, number: int) -> str:
    return (
        f"{counted(subtasks, 'subtask')} in {counted(number, 'wave')}. Each depends only on subtasks in earlier waves."
    )


def _boxes(
    summary: str, plan: Sequence[Sequence[PlanNode]], notes: Mapping[SubtaskId, str], link: Link | None
) -> Picture:
    rows = max(map(len, plan))
    places: dict[SubtaskId, tuple[int, int]] = {}
    boxes, lines = list[Markup](), list[Markup]()
    for column, nodes in enumerate(plan):
        x, offset = 1 + column * (NODE + GAP), (rows - len(nodes)) * GRAPH_ROW // 2
        for row, node in enumerate(nodes):
            y = GRAPH_TOP + offset + row * GRAPH_ROW
            places[node.id] = (x, y)
            boxes.append(_box(node, x, y, notes.get(node.id, ""), link))
            starts = (places[need] for need in node.needs if need in places)
            lines += [_edge(a + NODE, b + 10, x, y + 10) for a, b in starts]
    width, height = len(plan) * (NODE + GAP) - GAP + 2, 2 * GRAPH_TOP + rows * GRAPH_ROW
    return Picture("The plan", summary, width, height, _join([*lines, *boxes]), has_links=link is not None)


def _box(node: PlanNode, x: int, y: int, note: str, link: Link | None) -> Markup:
    label, full = safe(node.id, limit=22 - len(note)), safe(node.id, limit=200)
    box = _svg(
        '<rect class="box" x="{0}" y="{1}" width="{2}" height="20" rx="4"/>'
        '<rect class="node {3}" x="{0}" y="{1}" width="6" height="20" rx="2"/>'
        '<text class="in" x="{4}" y="{5}">{6}</text>{7}<title>{8}: {9}</title>',
        *(x, y, NODE, _tone(node), x + 12, y + 14, label),
        _svg('<text x="{}" y="{}" text-anchor="end">{}</text>', x + NODE - 6, y + 14, note) if note else "",
        *(full, node.status),
    )
    return _svg('<a href="{}">{}</a>', link(node.id), box) if link is not None else _svg("<g>{}</g>", box)


def _edge(x: int, y: int, to_x: int, to_y: int) -> Markup:
    middle = (x + to_x) // 2
    return _svg('<path class="edge" d="M{0} {1}C{2} {1} {2} {4} {3} {4}"/>', x, y, middle, to_x, to_y)


def _squares(summary: str, plan: Sequence[Sequence[PlanNode]]) -> Picture:
    """Draw a square for each subtask, without labels. One path per tone keeps the file small."""
    rows = max(SQUARES, isqrt(sum(map(len, plan)) // 3))
    paths: dict[str, list[str]] = {}
    parts, x = list[Markup](), 1
    for wave, nodes in enumerate(plan, 1):
        parts.append(_svg('<text x="{}" y="{}">{}</text>', x, GRAPH_TOP + 4, wave))
        for place, node in enumerate(nodes):
            column, row = divmod(place, rows)
            left, top = x + column * SQUARE, 2 * GRAPH_TOP + row * SQUARE
            paths.setdefault(_tone(node), []).append(f"M{left} {top}h11v11h-11z")
        x += -(-len(nodes) // rows) * SQUARE + SQUARE
    parts += [_svg('<path class="{}" d="{}"/>', tone, "".join(squares)) for tone, squares in paths.items()]
    height = 2 * GRAPH_TOP + min(rows, max(map(len, plan))) * SQUARE
    return Picture("The plan", summary, max(x, WIDTH), height, _join(parts))


def _wave_bars(summary: str, counts: Sequence[Counter[str]]) -> Picture:
    """Draw a bar for each wave, or for several, with the progress in each."""
    each = -(-len(counts) // WAVES)
    groups = [(first, counts[first : first + each]) for first in range(0, len(counts), each)]
    tallies = [sum(group, Counter[str]()) for _, group in groups]
    longest = max(tally.total() for tally in tallies)
    parts = list[Markup]()
    for row, ((first, group), tally) in enumerate(zip(groups, tallies, strict=True)):
        label = f"wave {first + 1}" if len(group) == 1 else f"waves {first + 1} to {first + len(group)}"
        y, x = GRAPH_TOP + row * GRAPH_ROW, float(GRAPH_LABEL)
        parts.append(_svg('<text x="{}" y="{}" text-anchor="end">{}</text>', GRAPH_LABEL - 6, y + 14, label))
        for tone in GRAPH_TONES:
            if width := tally.get(tone, 0) / longest * BAR:
                drawn = '<rect class="{}" x="{:.1f}" y="{}" width="{:.1f}" height="16"/>'
                parts.append(_svg(drawn, tone, x, y + 2, width))
                x += width
        texts = ", ".join(f"{tally[tone]} {word}" for tone, word in GRAPH_TONES.items() if tally.get(tone))
        parts.append(_svg('<text x="{:.1f}" y="{}">{}</text>', x + 6, y + 14, texts))
    return Picture("The plan", summary, GRAPH_LABEL + BAR + 300, 2 * GRAPH_TOP + len(groups) * GRAPH_ROW, _join(parts))
