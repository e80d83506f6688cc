"""Charts as inline SVG: no script, the colours of the page, and a sentence for readers who can't see them."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Literal

from dashboards.report.blocks import Bar, Bars, Chart, Graph, Lanes, Point
from dashboards.text.formats import duration, money
from dashboards.text.safe import safe

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
