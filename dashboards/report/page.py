"""A document as one HTML page: nothing is fetched, nothing runs, light and dark, for the screen and for paper.

Text from models, repositories and tests is escaped here; the page's content security policy is a second defence.
"""

from collections.abc import Iterator, Sequence
from html import escape
from itertools import count
from typing import assert_never

from dashboards.report import blocks
from dashboards.report.graph import graph
from dashboards.report.style import STYLE
from dashboards.report.svg import bars, chart, lanes
from dashboards.text.safe import safe, safe_block

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
LINES = 60  # of one paragraph
OPEN = 15  # rows of a table that is not folded
SHOWN, FOLDED = 300, 1_000  # rows of a long table in its first fold, and in each of the others


def page(document: blocks.Document, *, back: str = "") -> str:
    """The page, with a link to its run if a server shows it."""
    numbers = count(1)
    body = "".join(_section(section, numbers) for section in document.sections)
    links = "".join(
        f'<li><a href="#{section.anchor}">{escape(section.title)}</a></li>' for section in document.sections
    )
    if back:
        links = f'<li><a href="{escape(back)}">Back to the run</a></li>{links}'
    lead = "".join(f"<p>{_text(line)}</p>" for line in document.lead)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f"<title>{_text(document.title)}</title><style>{STYLE}</style></head>\n"
        f"<body><header><h1>{_text(document.title)}</h1>{_verdict(document)}{lead}</header>"
        f'<nav aria-label="Contents"><ul>{links}</ul></nav><main>{body}</main></body></html>\n'
    )


def _verdict(document: blocks.Document) -> str:
    if document.verdict is None:
        return ""
    tone, word, text = document.verdict.tone, document.verdict.word, document.verdict.text
    sign = {"good": "✔", "bad": "✘", "busy": "●"}.get(tone, "!")
    return f'<p class="verdict {escape(tone)}"><b>{sign} {_text(word)}</b> {_text(text)}</p>'


def _section(section: blocks.Section, numbers: Iterator[int]) -> str:
    content = "\n".join(_block(block, numbers) for block in section.blocks)
    title = escape(section.title)
    return f'<section id="{section.anchor}" aria-label="{title}"><h2>{title}</h2>\n{content}</section>\n'


def _block(block: blocks.Block, numbers: Iterator[int]) -> str:
    match block:
        case blocks.Paragraph(text=text, quoted=quoted):
            return f"<blockquote>{_lines(text)}</blockquote>" if quoted else f"<p>{_text(text)}</p>"
        case blocks.Numbers():
            items = (
                f"<div><dt>{_text(label)}</dt><dd><b>{_text(value)}</b> <small>{_text(note)}</small></dd></div>"
                for label, value, note in block.numbers
            )
            return f'<dl class="numbers">{"".join(items)}</dl>'
        case blocks.Table():
            return _table(block)
        case blocks.Chart():
            return chart(block, next(numbers))
        case blocks.Bars():
            return bars(block, next(numbers))
        case blocks.Lanes():
            return lanes(block, next(numbers))
        case blocks.Graph():
            return graph(block, next(numbers))
        case blocks.Commands(commands=commands):
            items = (f"<dt><code>{_text(command)}</code></dt><dd>{_text(what)}</dd>" for command, what in commands)
            return f'<dl class="commands">{"".join(items)}</dl>'
        case blocks.Log():
            lines = "\n".join(escape(safe_block(line)) for line in block.lines)
            return f"<details><summary>{_text(block.title)}</summary><pre>{lines}</pre></details>"
        case _:
            assert_never(block)


def _table(table: blocks.Table) -> str:
    head = "".join(f'<th scope="col"{_side(table, index)}>{_text(name)}</th>' for index, name in enumerate(table.head))
    caption, rows = _text(table.caption), table.rows
    if len(rows) <= OPEN:
        return _rows(table, head, caption, rows)
    first = _rows(table, head, caption, rows[:SHOWN])
    shown = f"<details><summary>{caption}: {len(rows):,} rows</summary>{first}</details>"
    starts = range(SHOWN, len(rows), FOLDED)
    return shown + "".join(_fold(table, head, first, rows[first : first + FOLDED]) for first in starts)


def _fold(table: blocks.Table, head: str, first: int, rows: Sequence[Sequence[blocks.Cell]]) -> str:
    """More rows of a long table, which a browser lays out once they are opened."""
    caption = f"{_text(table.caption)}: rows {first + 1:,} to {first + len(rows):,} of {len(table.rows):,}"
    return f"<details><summary>{caption}</summary>{_rows(table, head, caption, rows)}</details>"


def _rows(table: blocks.Table, head: str, caption: str, chosen: Sequence[Sequence[blocks.Cell]]) -> str:
    rows = "".join(f"<tr>{_row(table, row)}</tr>" for row in chosen)
    return (
        f'<div class="wide" role="region" aria-label="{caption}" tabindex="0"><table><caption>{caption}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _row(table: blocks.Table, row: Sequence[blocks.Cell]) -> str:
    """The first cell is the head of its row."""
    first, *rest = row
    cells = (f"<td{_side(table, index)}>{_cell(cell)}</td>" for index, cell in enumerate(rest, 1))
    return f'<th scope="row">{_cell(first)}</th>{"".join(cells)}'


def _side(table: blocks.Table, index: int) -> str:
    return ' class="number"' if index in table.numeric else ""


def _cell(cell: blocks.Cell) -> str:
    return f"<code>{_text(cell.text)}</code>" if isinstance(cell, blocks.Code) else _text(cell)


def _text(untrusted: str) -> str:
    return escape(safe(untrusted))


def _lines(untrusted: str) -> str:
    return "<br>".join(escape(line) for line in safe_block(untrusted, lines=LINES).splitlines())
