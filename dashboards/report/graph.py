"""The plan as inline SVG: waves from left to right, subtasks in the colour of their status, lines to what they need."""

from html import escape
from math import isqrt

from dashboards.report.blocks import Graph, Node
from dashboards.report.pictures import LABELLED
from dashboards.report.svg import figure
from dashboards.text.safe import safe

NODE, GAP = 150, 46  # widths of a node, and of the space for lines
ROW, TOP = 26, 10
SQUARE, SQUARES = 14, 12  # the size of one, and how many are in a column at least
LABEL, BAR = 130, 480  # widths of a label, and of the longest bar
TONES = {"good": "landed", "busy": "at work", "open": "waiting for a person", "bad": "failed", "rest": "to come"}
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
        x, offset = 1 + column * (NODE + GAP), (rows - len(nodes)) * ROW // 2
        for row, node in enumerate(nodes):
            y = TOP + offset + row * ROW
            places[node.label] = (x, y)
            boxes.append(_box(node, x, y))
            starts = (places[need] for need in node.needs if need in places)
            lines += [_line(a + NODE, b + 10, x, y + 10) for a, b in starts]
    has_links = any(node.link for nodes in it.columns for node in nodes)
    size = (width, 2 * TOP + rows * ROW)
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
        parts.append(f'<text x="{x}" y="{TOP + 4}">{wave}</text>')
        for place, node in enumerate(nodes):
            column, row = divmod(place, rows)
            left, top = x + column * SQUARE, 2 * TOP + row * SQUARE
            paths.setdefault(node.tone, []).append(f"M{left} {top}h11v11h-11z")
        x += -(-len(nodes) // rows) * SQUARE + SQUARE
    parts += [f'<path class="{tone}" d="{"".join(squares)}"/>' for tone, squares in paths.items()]
    height = 2 * TOP + min(rows, max(map(len, it.columns))) * SQUARE
    return figure(it, number, (max(x, 720), height), parts)


def _bars(it: Graph, number: int) -> str:
    """Too many even for squares: a bar for each wave, or for a few, with how much of it is done."""
    longest = max(sum(tally.values()) for _, tally in it.tallies)
    parts = []
    for row, (label, tally) in enumerate(it.tallies):
        y, x = TOP + row * ROW, float(LABEL)
        parts.append(f'<text x="{LABEL - 6}" y="{y + 14}" text-anchor="end">{escape(label)}</text>')
        for tone in TONES:
            if width := tally.get(tone, 0) / longest * BAR:
                parts.append(f'<rect class="{tone}" x="{x:.1f}" y="{y + 2}" width="{width:.1f}" height="16"/>')
                x += width
        texts = ", ".join(f"{tally[tone]} {word}" for tone, word in TONES.items() if tally.get(tone))
        parts.append(f'<text x="{x + 6:.1f}" y="{y + 14}">{escape(texts)}</text>')
    return figure(it, number, (LABEL + BAR + 300, 2 * TOP + len(it.tallies) * ROW), parts)
