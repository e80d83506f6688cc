"""A document as one HTML page: nothing is fetched, nothing runs, light and dark, for the screen and for paper.

Text from models, repositories and tests is escaped here; the page's content security policy is a second defence.
"""

import re
from collections.abc import Iterator, Sequence
from html import escape
from itertools import count
from typing import assert_never

from dashboards.report import blocks
from dashboards.report.pictures import bars, chart, columns, graph, lanes
from dashboards.text.formats import sparkline
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


# ---- style -----------------------------------------------------------------------------------------------------------
# The style of the page: system fonts, the reader's choice of light or dark, and black on white on paper.


STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2128; --dim: #57606a; --rule: #d0d7de; --soft: #f4f6f8;
  --c0: #0a5dc2; --c1: #0f7b46; --c2: #9a5b00; --c3: #8a2c8f; --c4: #b3261e; --good: #0f7b46; --bad: #b3261e;
  --open: #9a5b00; }
@media screen and (prefers-color-scheme: dark) { :root { --paper: #12161c; --ink: #e6edf3; --dim: #9aa5b1;
  --rule: #30363d; --soft: #1b2129; --c0: #6cb0ff; --c1: #5fd39a; --c2: #f0b35a; --c3: #dc9be3; --c4: #ff8f85;
  --good: #5fd39a; --bad: #ff8f85; --open: #f0b35a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem; max-width: 62rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.8rem; margin: 0 0 .5rem; } h2 { font-size: 1.3rem; margin: 2.2rem 0 .6rem; }
header p { margin: .2rem 0; color: var(--dim); }
nav ul, .legend { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; }
a { color: var(--c0); } a:focus-visible, .wide:focus-visible { outline: 2px solid var(--c0); outline-offset: 2px; }
.verdict { margin: .6rem 0; padding: .7rem 1rem; border-radius: .5rem; background: var(--soft); color: var(--ink);
  border-left: .4rem solid var(--open); } .verdict b { font-size: 1.25rem; margin-right: .6rem; }
.verdict.good { border-color: var(--good); } .verdict.bad { border-color: var(--bad); }
.verdict.good b { color: var(--good); } .verdict.bad b { color: var(--bad); } .verdict.open b { color: var(--open); }
.verdict.busy { border-color: var(--c0); } .verdict.busy b { color: var(--c0); }
nav { position: sticky; top: 0; background: var(--paper); border-bottom: 1px solid var(--rule); z-index: 1; }
section { scroll-margin-top: 4rem; }
blockquote { margin: .8rem 0; padding: .6rem 1rem; background: var(--soft); border-left: 3px solid var(--rule); }
.numbers { display: grid; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); gap: .8rem; margin: 1rem 0; }
.numbers div { background: var(--soft); padding: .7rem 1rem; border-radius: .5rem; }
.numbers dt, small, figure p { color: var(--dim); font-size: .85rem; } .numbers dd { margin: 0; }
.numbers b { font-size: 1.35rem; display: block; }
.commands dt { margin-top: .6rem; } .commands dd { margin: 0 0 0 1rem; color: var(--dim); }
code { font: .9em ui-monospace, monospace; background: var(--soft); padding: .1em .3em; border-radius: .25em; }
.wide { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; overflow-wrap: normal; }
caption, figcaption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { text-align: left; vertical-align: top; padding: .35rem .7rem .35rem 0; border-bottom: 1px solid var(--rule); }
tbody th { font-weight: 400; } .number { text-align: right; font-variant-numeric: tabular-nums; }
details { margin: .5rem 0; } summary { cursor: pointer; } summary:focus-visible { outline: 2px solid var(--c0); }
pre { margin: .4rem 0; padding: .7rem 1rem; background: var(--soft); overflow-x: auto; white-space: pre-wrap;
  font: .85rem/1.45 ui-monospace, monospace; }
figure { margin: 1.2rem 0; } figure .wide { margin: 0; }
figure .wide > svg { width: 100%; min-width: 40rem; height: auto; display: block; } figure p { margin: .2rem 0; }
svg text { fill: var(--dim); font: 11px system-ui, sans-serif; }
.grid, .axis { stroke: var(--rule); fill: none; } .mark { stroke: var(--dim); stroke-dasharray: 2 4; fill: none; }
.line { fill: none; stroke-width: 2; } .l0 { stroke: var(--c0); } .l1 { stroke: var(--c1); stroke-dasharray: 7 2; }
.l2 { stroke: var(--c2); stroke-dasharray: 2 2; } .l3 { stroke: var(--c3); stroke-dasharray: 9 3 2 3; }
.l4 { stroke: var(--c4); stroke-dasharray: 4 4; }
.good { fill: var(--good); } .bad { fill: var(--bad); } .open { fill: var(--open); }
.rest { fill: var(--paper); stroke: var(--dim); } .busy { fill: var(--c0); } .box { fill: var(--soft); }
.edge { stroke: var(--dim); fill: none; opacity: .6; } svg text.in { fill: var(--ink); }
@media (max-width: 40rem) { body { padding: .8rem; } h1 { font-size: 1.4rem; } nav { position: static; }
  .numbers { grid-template-columns: repeat(2, 1fr); gap: .5rem; }
  table { width: max-content; min-width: 100%; } th, td { max-width: 75vw; } }
@media print { :root { color-scheme: light; --ink: #000; --dim: #333; --rule: #999; --soft: #fff; }
  body { max-width: none; padding: 0; font-size: 11pt; } nav { display: none; } .wide { overflow: visible; }
  figure .wide > svg { min-width: 0; }
  figure, tr, blockquote, .numbers div { break-inside: avoid; } h2 { break-after: avoid; } }
"""


# ---- markdown --------------------------------------------------------------------------------------------------------
# A document as Markdown: the same text and tables as the page; a chart is a row of characters and its sentence.
#
# Text from others can't become markup: it makes no image that is fetched, no link, no row of a table, and on a forge
# no mention, no reference to an issue (which could close it), and no command.


CHART_WIDTH = 48  # characters
_MARKS = re.compile(r"([\\`*_{}\[\]()#|~!^$])")
_LEADS = re.compile(r"^(\s*)([-+=:/])|^(\s*\d+)([.)])(?=\s|$)")
_REFERENCE = re.compile(r"(?<=[#!])(?=\d)|(?<=GH-)(?=\d)", re.IGNORECASE)
_GAP = "&#8203;"
"""A space without a width: a forge looks for names and numbers in the text as it is shown."""
_SIGNS = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def markdown(document: blocks.Document) -> str:
    return "\n".join(_document(document))


def _document(document: blocks.Document) -> Iterator[str]:
    yield f"# {_markdown_text(document.title)}\n"
    if document.verdict is not None:
        yield f"**{_markdown_text(document.verdict.word)}**: {_markdown_text(document.verdict.text)}\n"
    for line in document.lead:
        yield f"{_markdown_text(line)}\n"
    for section in document.sections:
        yield f"## {section.title}\n"
        for block in section.blocks:
            yield from _markdown_block(block)
            yield ""


def _markdown_block(block: blocks.Block) -> Iterator[str]:
    match block:
        case blocks.Paragraph(text=text, quoted=True):
            yield "\n".join(f"> {_markdown_text(line)}" for line in safe_block(text, lines=LINES).splitlines())
        case blocks.Paragraph(text=text):
            yield _markdown_text(text)
        case blocks.Numbers(numbers=numbers):
            yield "| | | |\n|---|---|---|"
            yield from (
                f"| {_markdown_text(label)} | **{_markdown_text(value)}** | {_markdown_text(note)} |"
                for label, value, note in numbers
            )
        case blocks.Table():
            yield f"**{_markdown_text(block.caption)}**\n"
            yield f"| {' | '.join(map(_markdown_text, block.head))} |"
            yield f"|{'|'.join('---:' if index in block.numeric else '---' for index in range(len(block.head)))}|"
            yield from (f"| {' | '.join(map(_markdown_cell, row))} |" for row in block.rows)
        case blocks.Chart():
            width = max(map(len, block.lines), default=0)
            yield f"**{_markdown_text(block.title)}.** {_markdown_text(block.summary)}"
            yield from _fenced(
                f"{safe(name):<{width}}  {sparkline(columns(points, block.seconds, CHART_WIDTH))}"
                for name, points in block.lines.items()
            )
        case blocks.Bars() | blocks.Lanes() | blocks.Graph():
            yield f"**{_markdown_text(block.title)}.** {_markdown_text(block.summary)}"
        case blocks.Commands(commands=commands):
            yield from (f"- {_code(command)}: {_markdown_text(what)}" for command, what in commands)
        case blocks.Log():
            yield f"**{_markdown_text(block.title)}**"
            yield from _fenced(safe_block(line) for line in block.lines)
        case _:
            assert_never(block)


def _fenced(lines: Iterator[str]) -> Iterator[str]:
    """Lines between fences. None of them can close the fence."""
    yield "\n```text"
    yield from (line.replace("`", "'") for line in lines)
    yield "```"


def _markdown_cell(cell: blocks.Cell) -> str:
    return _code(cell.text) if isinstance(cell, blocks.Code) else _markdown_text(cell)


def _code(text: str) -> str:
    """Text between backticks, where only a backtick has a meaning, and a bar in a table."""
    return f"`{safe(text).replace('`', chr(39)).replace('|', '/')}`"


def _markdown_text(untrusted: str) -> str:
    """Text without markup. Anything that could start a link by itself is broken up."""
    signs = "".join(_SIGNS.get(character, character) for character in safe(untrusted))
    plain = _REFERENCE.sub(_GAP, _MARKS.sub(r"\\\1", signs)).replace("@", f"&#64;{_GAP}")
    plain = plain.replace("://", f"&#58;{_GAP}//").replace("www.", "www&#46;")
    return _LEADS.sub(r"\1\3\\\2\4", plain)
