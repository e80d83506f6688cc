"""The pictures of a report: the plan as a graph, charts, and bars on a time line."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from html import escape
from itertools import chain
from math import isqrt
from typing import Literal

from dashboards.report.blocks import Bar, Bars, Chart, Graph, Lanes, Node, Point
from dashboards.text.formats import counted, duration, money
from dashboards.text.safe import safe
from fleet.core.base.ids import SubtaskId
from fleet.read.report_data import PlanNode
from fleet.read.run_view import SubtaskStatus

LABELLED = 60  # nodes with labels and lines; of a larger plan, areas stand for their subtasks
DRAWN = 1_000  # nodes that are drawn at all; of a larger plan the graph shows how far each wave is
ROWS = 40  # for the waves of such a plan
TONES: dict[SubtaskStatus, str] = {
    "merged": "good",
    "failed": "bad",
    "blocked": "bad",
    "escalated": "open",
    "running": "busy",
    "verifying": "busy",
    "landing": "busy",
}
"""How the status of a subtask looks in the graph; all others are `rest`."""


def _no_link(_: SubtaskId) -> str:
    return ""


def plan_graph(plan: Sequence[Sequence[PlanNode]], link: Callable[[SubtaskId], str] = _no_link) -> Graph:
    """The waves of a plan as a picture that stays readable, and light, whatever their size."""
    total = sum(map(len, plan))
    summary = _summary(total, len(plan))
    notes: dict[SubtaskId, str] = {}
    if total > LABELLED and any(node.area is not None for node in chain(*plan)):
        notes = _areas(plan)
        plan = [outer for wave in plan if (outer := [node for node in wave if node.area is None])]
        summary += f" {counted(len(notes), 'area')} with how many of their subtasks landed."
    if sum(map(len, plan)) > DRAWN:
        counts = [Counter(TONES.get(node.status, "rest") for node in wave) for wave in plan]
        return Graph("The plan", summary, (), _rows(counts))
    columns = [
        [
            Node(
                node.id, TONES.get(node.status, "rest"), node.needs, node.status, notes.get(node.id, ""), link(node.id)
            )
            for node in wave
        ]
        for wave in plan
    ]
    return Graph("The plan", summary, columns)


def _areas(plan: Sequence[Sequence[PlanNode]]) -> dict[SubtaskId, str]:
    """For each area of the run's own planner, how many of all subtasks below it landed."""
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


def wave_graph(counts: Sequence[Counter[str]]) -> Graph:
    """The same of a plan that is too large to be drawn, from how many subtasks of each wave have each tone."""
    return Graph("The plan", _summary(sum(each.total() for each in counts), len(counts)), (), _rows(counts))


def _summary(subtasks: int, number: int) -> str:
    return f"{counted(subtasks, 'subtask')} in {counted(number, 'wave')}: each needs only those of earlier waves."


def _rows(counts: Sequence[Counter[str]]) -> list[tuple[str, Counter[str]]]:
    """One for each wave, or for a few where there are many."""
    each = -(-len(counts) // ROWS)
    ends = ((first, min(first + each, len(counts))) for first in range(0, len(counts), each))
    return [
        (
            f"wave {first + 1}" if last == first + 1 else f"waves {first + 1} to {last}",
            sum(counts[first:last], Counter()),
        )
        for first, last in ends
    ]


# ---- svg -------------------------------------------------------------------------------------------------------------
# Charts as inline SVG: no script, the colours of the page, and a sentence for readers who can't see them.


WIDTH, HEIGHT = 720, 210
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 10, 24
ROW, LABEL = 20, 190
MOST_POINTS = 300
TICKS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400, 604_800)
MOST_TICKS = 8


def chart(it: Chart, number: int) -> str:
    """Lines as steps: a value holds until the next one. `number` makes its ids unique in the page."""
    seconds = max(it.seconds, *(at for points in it.lines.values() for at, _ in points[-1:]), 1.0)
    top = _axis_end(max((value for points in it.lines.values() for _, value in points), default=0.0))
    scale_x, scale_y = (WIDTH - LEFT - RIGHT) / seconds, (HEIGHT - TOP - BOTTOM) / top
    parts = [_x_axis(seconds, LEFT, scale_x, HEIGHT)]
    for value in (0.0, top / 2, top):
        y = HEIGHT - BOTTOM - value * scale_y
        label = money(value) if it.dollars else f"{value:g}"
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(label)}</text>')
    parts += [f'<path class="mark" d="M{LEFT + at * scale_x:.1f} {TOP}V{HEIGHT - BOTTOM}"/>' for at in it.marks]
    for index, points in enumerate(it.lines.values()):
        places = [(LEFT + at * scale_x, HEIGHT - BOTTOM - value * scale_y) for at, value in thinned(points, seconds)]
        parts.append(f'<path class="line l{index % 5}" d="{_path(places)}H{LEFT + it.seconds * scale_x:.1f}"/>')
    return figure(it, number, (WIDTH, HEIGHT), parts, above=_legend(it.lines) if len(it.lines) > 1 else "")


def bars(it: Bars, number: int) -> str:
    """Spans, one below the other."""
    seconds = max(it.seconds, *(bar.to_s or 0.0 for bar in it.bars), 1.0)
    height = TOP + ROW * len(it.bars) + BOTTOM
    scale = (WIDTH - LABEL - RIGHT) / seconds
    parts = [_x_axis(seconds, LABEL, scale, height)]
    parts += [_bar(bar, row, scale, seconds) for row, bar in enumerate(it.bars)]
    more = f"<p>{it.left_out} more are in the table of incidents.</p>" if it.left_out else ""
    return figure(it, number, (WIDTH, height), parts, below=more)


def lanes(it: Lanes, number: int) -> str:
    """Bars in rows."""
    ends = (bar.to_s or 0.0 for lane in it.lanes for bar in lane.bars)
    seconds = max(it.seconds, *ends, 1.0)
    height = TOP + ROW * len(it.lanes) + BOTTOM
    scale = (WIDTH - LABEL - RIGHT) / seconds
    parts = [_x_axis(seconds, LABEL, scale, height)]
    for row, lane in enumerate(it.lanes):
        y = TOP + ROW * row
        parts.append(
            f'<text x="{LABEL - 6}" y="{y + 14}" text-anchor="end">{escape(safe(lane.label, limit=30))}</text>'
        )
        parts += [_lane_bar(bar, y, scale, seconds) for bar in lane.bars]
    more = f"<p>{it.left_out} more subtasks are in the tables.</p>" if it.left_out else ""
    return figure(it, number, (WIDTH, height), parts, above=_KEY, below=more)


_KEY = (
    '<ul class="legend">'
    + "".join(
        f'<li><svg width="14" height="12" aria-hidden="true"><rect class="{name}" width="14" height="12" rx="3"/>'
        f"</svg> {word}</li>"
        for name, word in (("good", "landed"), ("bad", "failed"), ("busy", "not ended"))
    )
    + "</ul>"
)


def _lane_bar(bar: Bar, y: int, scale: float, seconds: float) -> str:
    to = bar.to_s if bar.to_s is not None else seconds
    name = {True: "good", False: "bad", None: "busy"}[bar.good]
    x, width = LABEL + bar.from_s * scale, max(2.0, (to - bar.from_s) * scale)
    return (
        f'<rect class="{name}" x="{x:.1f}" y="{y + 4}" width="{width:.1f}" height="{ROW - 8}" rx="2">'
        f"<title>attempt {escape(bar.label)}</title></rect>"
    )


def _bar(bar: Bar, row: int, scale: float, seconds: float) -> str:
    y = TOP + ROW * row
    to = bar.to_s if bar.to_s is not None else seconds
    name, mark = {True: ("good", "✔"), False: ("bad", "✘"), None: ("open", "…")}[bar.good]
    x, width = LABEL + bar.from_s * scale, max(3.0, (to - bar.from_s) * scale)
    label = escape(safe(bar.label, limit=30))
    return (
        f'<text x="{LABEL - 6}" y="{y + 14}" text-anchor="end">{label} {mark}</text>'
        f'<rect class="{name}" x="{x:.1f}" y="{y + 4}" width="{width:.1f}" height="{ROW - 8}" rx="3"/>'
    )


def thinned(points: Sequence[Point], seconds: float) -> Sequence[Point]:
    """Few enough points for a chart: the highest and the last one of each column."""
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


def _x_axis(seconds: float, left: int, scale: float, height: int) -> str:
    step = next((tick for tick in TICKS_S if seconds / tick <= MOST_TICKS), int(seconds / MOST_TICKS))
    texts = (
        f'<text x="{left + tick * scale:.1f}" y="{height - 6}" text-anchor="middle">{escape(duration(tick))}</text>'
        for tick in range(0, int(seconds) + 1, step)
        if left + tick * scale < WIDTH - RIGHT - 10 or tick == 0
    )
    return f'<path class="axis" d="M{left} {height - BOTTOM}H{WIDTH - RIGHT}"/>' + "".join(texts)


def _axis_end(value: float) -> float:
    """A round number that is not below `value`."""
    if value <= 0:
        return 1.0
    size = 10.0 ** len(str(int(value))) / 10 if value >= 1 else 0.0001
    while size * 10 < value:
        size *= 10
    return next(size * step for step in (1, 1.2, 1.6, 2, 2.4, 3, 4, 5, 6, 8, 10, 20) if size * step >= value)


def _legend(names: Iterable[str]) -> str:
    items = (
        f'<li><svg width="28" height="10" aria-hidden="true"><path class="line l{index % 5}" d="M0 5H28"/></svg> '
        f"{escape(safe(name))}</li>"
        for index, name in enumerate(names)
    )
    return f'<ul class="legend">{"".join(items)}</ul>'


def figure(
    it: Chart | Bars | Lanes | Graph,
    number: int,
    size: tuple[int, int],
    parts: Sequence[str],
    *,
    above: str = "",
    below: str = "",
    role: Literal["img", "group"] = "img",
) -> str:
    """A picture that scrolls by itself where the screen is narrower than its text needs; with links it is a group."""
    title, summary = escape(it.title), escape(safe(it.summary))
    width, height = size
    return (
        f"<figure><figcaption>{title}</figcaption>{above}"
        f'<div class="wide" role="region" aria-label="{title}" tabindex="0">'
        f'<svg viewBox="0 0 {width} {height}" preserveAspectRatio="xMinYMin" role="{role}" '
        f'aria-labelledby="t{number} d{number}">'
        f'<title id="t{number}">{title}</title><desc id="d{number}">{summary}</desc>{"".join(parts)}</svg></div>'
        f"<p>{summary}</p>{below}</figure>"
    )


# ---- graph -----------------------------------------------------------------------------------------------------------
# The plan as inline SVG: waves from left to right, subtasks in the colour of their status, lines to what they need.


NODE, GAP = 150, 46  # widths of a node, and of the space for lines
GRAPH_ROW, GRAPH_TOP = 26, 10
SQUARE, SQUARES = 14, 12  # the size of one, and how many are in a column at least
GRAPH_LABEL, BAR = 130, 480  # widths of a label, and of the longest bar
GRAPH_TONES = {"good": "landed", "busy": "at work", "open": "waiting for a person", "bad": "failed", "rest": "to come"}
"""In the order in which they stand in a bar."""


def graph(it: Graph, number: int) -> str:
    if it.tallies:
        return _bars(it, number)
    nodes = sum(map(len, it.columns))
    return _labelled(it, number) if nodes <= LABELLED else _squares(it, number)


def _labelled(it: Graph, number: int) -> str:
    rows = max(map(len, it.columns))
    width = len(it.columns) * (NODE + GAP) - GAP + 2
    places: dict[str, tuple[int, int]] = {}
    boxes, lines = [], []
    for column, nodes in enumerate(it.columns):
        x, offset = 1 + column * (NODE + GAP), (rows - len(nodes)) * GRAPH_ROW // 2
        for row, node in enumerate(nodes):
            y = GRAPH_TOP + offset + row * GRAPH_ROW
            places[node.label] = (x, y)
            boxes.append(_box(node, x, y))
            starts = (places[need] for need in node.needs if need in places)
            lines += [_line(a + NODE, b + 10, x, y + 10) for a, b in starts]
    has_links = any(node.link for nodes in it.columns for node in nodes)
    size = (width, 2 * GRAPH_TOP + rows * GRAPH_ROW)
    return figure(it, number, size, [*lines, *boxes], role="group" if has_links else "img")


def _box(node: Node, x: int, y: int) -> str:
    label, full = escape(safe(node.label, limit=22 - len(node.note))), escape(safe(node.label, limit=200))
    note = f'<text x="{x + NODE - 6}" y="{y + 14}" text-anchor="end">{escape(node.note)}</text>' if node.note else ""
    box = (
        f'<rect class="box" x="{x}" y="{y}" width="{NODE}" height="20" rx="4"/>'
        f'<rect class="node {node.tone}" x="{x}" y="{y}" width="6" height="20" rx="2"/>'
        f'<text class="in" x="{x + 12}" y="{y + 14}">{label}</text>{note}<title>{full}: {escape(node.status)}</title>'
    )
    return f'<a href="{escape(node.link)}">{box}</a>' if node.link else f"<g>{box}</g>"


def _line(x: int, y: int, to_x: int, to_y: int) -> str:
    middle = (x + to_x) // 2
    return f'<path class="edge" d="M{x} {y}C{middle} {y} {middle} {to_y} {to_x} {to_y}"/>'


def _squares(it: Graph, number: int) -> str:
    """Too many for labels: how much of each wave is done. One path for each tone keeps it light."""
    total = sum(map(len, it.columns))
    rows = max(SQUARES, isqrt(total // 3))
    paths: dict[str, list[str]] = {}
    parts, x = [], 1
    for wave, nodes in enumerate(it.columns, 1):
        parts.append(f'<text x="{x}" y="{GRAPH_TOP + 4}">{wave}</text>')
        for place, node in enumerate(nodes):
            column, row = divmod(place, rows)
            left, top = x + column * SQUARE, 2 * GRAPH_TOP + row * SQUARE
            paths.setdefault(node.tone, []).append(f"M{left} {top}h11v11h-11z")
        x += -(-len(nodes) // rows) * SQUARE + SQUARE
    parts += [f'<path class="{tone}" d="{"".join(squares)}"/>' for tone, squares in paths.items()]
    height = 2 * GRAPH_TOP + min(rows, max(map(len, it.columns))) * SQUARE
    return figure(it, number, (max(x, 720), height), parts)


def _bars(it: Graph, number: int) -> str:
    """Too many even for squares: a bar for each wave, or for a few, with how much of it is done."""
    longest = max(sum(tally.values()) for _, tally in it.tallies)
    parts = []
    for row, (label, tally) in enumerate(it.tallies):
        y, x = GRAPH_TOP + row * GRAPH_ROW, float(GRAPH_LABEL)
        parts.append(f'<text x="{GRAPH_LABEL - 6}" y="{y + 14}" text-anchor="end">{escape(label)}</text>')
        for tone in GRAPH_TONES:
            if width := tally.get(tone, 0) / longest * BAR:
                parts.append(f'<rect class="{tone}" x="{x:.1f}" y="{y + 2}" width="{width:.1f}" height="16"/>')
                x += width
        texts = ", ".join(f"{tally[tone]} {word}" for tone, word in GRAPH_TONES.items() if tally.get(tone))
        parts.append(f'<text x="{x + 6:.1f}" y="{y + 14}">{escape(texts)}</text>')
    return figure(it, number, (GRAPH_LABEL + BAR + 300, 2 * GRAPH_TOP + len(it.tallies) * GRAPH_ROW), parts)
