"""The plan as inline SVG: waves from left to right, subtasks in the colour of their status, lines to what they need."""

from html import escape
from math import isqrt

from dashboards.report.blocks import Graph, Node
from dashboards.report.svg import figure
from dashboards.text.safe import safe

NODE, GAP = 150, 46  # widths of a node, and of the space for lines
ROW, TOP = 26, 10
LABELLED = 60  # nodes; where there are more, each is a square without lines
SQUARE, SQUARES = 14, 24  # the size of one, and how many are in a column at least


def graph(it: Graph, number: int) -> str:
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
    return figure(it, number, (width, 2 * TOP + rows * ROW), [*lines, *boxes])


def _box(node: Node, x: int, y: int) -> str:
    label = escape(safe(node.label, limit=22))
    return (
        f'<rect class="box" x="{x}" y="{y}" width="{NODE}" height="20" rx="4"/>'
        f'<rect class="node {node.tone}" x="{x}" y="{y}" width="6" height="20" rx="2"/>'
        f'<text class="in" x="{x + 12}" y="{y + 14}">{label}</text>'
    )


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
