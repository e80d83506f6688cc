"""Charts as inline SVG: no script, no colour that is not the page's, and a sentence for whoever can't see them."""

from collections.abc import Sequence
from html import escape

from dashboards.figures import duration, money
from dashboards.report.blocks import Bar, Bars, Chart, Line
from dashboards.safe import safe

WIDTH, HEIGHT = 720, 210
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 10, 24
ROW, LABEL = 20, 190
MOST_POINTS = 300
TICKS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400, 604_800)
MOST_TICKS = 8
SPARKS = "▁▂▃▄▅▆▇█"
SPARKS_WIDE = 48


def chart(it: Chart, number: int) -> str:
    """Lines that hold a value until the next."""
    seconds = max(it.seconds, *(at for line in it.lines for at, _ in line.points[-1:]), 1.0)
    top = _nice(max((value for line in it.lines for _, value in line.points), default=0.0))
    scale_x, scale_y = (WIDTH - LEFT - RIGHT) / seconds, (HEIGHT - TOP - BOTTOM) / top
    parts = [_x_axis(seconds, LEFT, scale_x, HEIGHT)]
    for step in range(3):
        value = top * step / 2
        y = HEIGHT - BOTTOM - value * scale_y
        label = money(value) if it.dollars else f"{value:g}"
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(label)}</text>')
    parts += [f'<path class="mark" d="M{LEFT + at * scale_x:.1f} {TOP}V{HEIGHT - BOTTOM}"/>' for at in it.marks]
    for index, line in enumerate(it.lines):
        points = [
            (LEFT + at * scale_x, HEIGHT - BOTTOM - value * scale_y) for at, value in thinned(line.points, seconds)
        ]
        parts.append(f'<path class="line l{index % 5}" d="{_path(points)}H{LEFT + it.seconds * scale_x:.1f}"/>')
    legend = _legend(it.lines) if len(it.lines) > 1 else ""
    return _figure(it, number, HEIGHT, parts, above=legend)


def bars(it: Bars, number: int) -> str:
    """Spans, one below the other."""
    seconds = max(it.seconds, *(bar.to_s or 0.0 for bar in it.bars), 1.0)
    height = TOP + ROW * len(it.bars) + BOTTOM
    scale = (WIDTH - LABEL - RIGHT) / seconds
    parts = [_x_axis(seconds, LABEL, scale, height)]
    parts += [_bar(bar, row, scale, seconds) for row, bar in enumerate(it.bars)]
    more = f"<p>{it.left_out} more stand in the table of incidents.</p>" if it.left_out else ""
    return _figure(it, number, height, parts, below=more)


def _bar(bar: Bar, row: int, scale: float, seconds: float) -> str:
    y = TOP + ROW * row
    to = bar.to_s if bar.to_s is not None else seconds
    name, mark = {True: ("good", "✔"), False: ("bad", "✘"), None: ("open", "…")}[bar.good]
    x, wide = LABEL + bar.from_s * scale, max(3.0, (to - bar.from_s) * scale)
    label = escape(safe(bar.label, limit=30))
    return (
        f'<text x="{LABEL - 6}" y="{y + 14}" text-anchor="end">{label} {mark}</text>'
        f'<rect class="{name}" x="{x:.1f}" y="{y + 4}" width="{wide:.1f}" height="{ROW - 8}" rx="3"/>'
    )


def thinned(points: Sequence[tuple[float, float]], seconds: float) -> list[tuple[float, float]]:
    """Few enough points for a picture: of each column the highest and the last."""
    if len(points) <= MOST_POINTS:
        return list(points)
    columns: dict[int, list[tuple[float, float]]] = {}
    for point in points:
        columns.setdefault(int(point[0] / seconds * MOST_POINTS / 2), []).append(point)
    kept = (sorted({max(column, key=lambda point: point[1]), column[-1]}) for column in columns.values())
    return [point for column in kept for point in column]


def sparkline(points: Sequence[tuple[float, float]], seconds: float) -> str:
    """A line as a row of characters: the highest value of each column."""
    if not points or seconds <= 0:
        return ""
    top = max(value for _, value in points) or 1.0
    cells, now, index = [], 0.0, 0
    for column in range(SPARKS_WIDE):
        highest = now
        while index < len(points) and points[index][0] <= (column + 1) * seconds / SPARKS_WIDE:
            now = points[index][1]
            highest, index = max(highest, now), index + 1
        cells.append(SPARKS[min(len(SPARKS) - 1, int(highest / top * (len(SPARKS) - 1) + 0.5))])
    return "".join(cells)


def _path(points: Sequence[tuple[float, float]]) -> str:
    if not points:
        return f"M{LEFT} {HEIGHT - BOTTOM}"
    (x, y), *rest = points
    return f"M{x:.1f} {y:.1f}" + "".join(f"H{to:.1f}V{value:.1f}" for to, value in rest)


def _x_axis(seconds: float, left: int, scale: float, height: int) -> str:
    step = next((tick for tick in TICKS_S if seconds / tick <= MOST_TICKS), int(seconds / MOST_TICKS))
    ticks = range(0, int(seconds) + 1, step)
    texts = (
        f'<text x="{left + tick * scale:.1f}" y="{height - 6}" text-anchor="middle">{escape(duration(tick))}</text>'
        for tick in ticks
        if left + tick * scale < WIDTH - RIGHT - 10 or tick == 0
    )
    return f'<path class="axis" d="M{left} {height - BOTTOM}H{WIDTH - RIGHT}"/>' + "".join(texts)


def _nice(value: float) -> float:
    """The end of an axis: a round number not below `value`."""
    if value <= 0:
        return 1.0
    size = 10.0 ** len(str(int(value))) / 10 if value >= 1 else 0.0001
    while size * 10 < value:
        size *= 10
    return next(size * step for step in (1, 2, 4, 5, 6, 8, 10, 20) if size * step >= value)


def _legend(lines: Sequence[Line]) -> str:
    items = (
        f'<li><svg width="28" height="10" aria-hidden="true"><path class="line l{index % 5}" d="M0 5H28"/></svg> '
        f"{escape(safe(line.name))}</li>"
        for index, line in enumerate(lines)
    )
    return f'<ul class="legend">{"".join(items)}</ul>'


def _figure(
    it: Chart | Bars, number: int, height: int, parts: Sequence[str], *, above: str = "", below: str = ""
) -> str:
    named, told = f"t{number}", f"d{number}"
    title, says = escape(it.title), escape(safe(it.says))
    return (
        f"<figure><figcaption>{title}</figcaption>{above}"
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-labelledby="{named} {told}">'
        f'<title id="{named}">{title}</title><desc id="{told}">{says}</desc>{"".join(parts)}</svg>'
        f"<p>{says}</p>{below}</figure>"
    )
