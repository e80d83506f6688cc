"""A document as Markdown: the same text and tables as the page; a chart is a row of characters and its sentence.

Text from others can't become markup: it makes no image that is fetched, no link, no row of a table, and on a forge no
mention, no reference to an issue (which could close it), and no command.
"""

import re
from collections.abc import Iterator
from typing import assert_never

from dashboards.report import blocks
from dashboards.report.svg import columns
from dashboards.text.formats import sparkline
from dashboards.text.safe import safe, safe_block

LINES = 60  # of one paragraph
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
    yield f"# {_text(document.title)}\n"
    if document.verdict is not None:
        yield f"**{_text(document.verdict.word)}**: {_text(document.verdict.text)}\n"
    for line in document.lead:
        yield f"{_text(line)}\n"
    for section in document.sections:
        yield f"## {section.title}\n"
        for block in section.blocks:
            yield from _block(block)
            yield ""


def _block(block: blocks.Block) -> Iterator[str]:
    match block:
        case blocks.Paragraph(text=text, quoted=True):
            yield "\n".join(f"> {_text(line)}" for line in safe_block(text, lines=LINES).splitlines())
        case blocks.Paragraph(text=text):
            yield _text(text)
        case blocks.Numbers(numbers=numbers):
            yield "| | | |\n|---|---|---|"
            yield from (f"| {_text(label)} | **{_text(value)}** | {_text(note)} |" for label, value, note in numbers)
        case blocks.Table():
            yield f"**{_text(block.caption)}**\n"
            yield f"| {' | '.join(map(_text, block.head))} |"
            yield f"|{'|'.join('---:' if index in block.numeric else '---' for index in range(len(block.head)))}|"
            yield from (f"| {' | '.join(map(_cell, row))} |" for row in block.rows)
        case blocks.Chart():
            width = max(map(len, block.lines), default=0)
            yield f"**{_text(block.title)}.** {_text(block.summary)}"
            yield from _fenced(
                f"{safe(name):<{width}}  {sparkline(columns(points, block.seconds, CHART_WIDTH))}"
                for name, points in block.lines.items()
            )
        case blocks.Bars() | blocks.Lanes() | blocks.Graph():
            yield f"**{_text(block.title)}.** {_text(block.summary)}"
        case blocks.Commands(commands=commands):
            yield from (f"- {_code(command)}: {_text(what)}" for command, what in commands)
        case blocks.Log():
            yield f"**{_text(block.title)}**"
            yield from _fenced(safe_block(line) for line in block.lines)
        case _:
            assert_never(block)


def _fenced(lines: Iterator[str]) -> Iterator[str]:
    """Lines between fences. None of them can close the fence."""
    yield "\n```text"
    yield from (line.replace("`", "'") for line in lines)
    yield "```"


def _cell(cell: blocks.Cell) -> str:
    return _code(cell.text) if isinstance(cell, blocks.Code) else _text(cell)


def _code(text: str) -> str:
    """Text between backticks, where only a backtick has a meaning, and a bar in a table."""
    return f"`{safe(text).replace('`', chr(39)).replace('|', '/')}`"


def _text(untrusted: str) -> str:
    """Text without markup. Anything that could start a link by itself is broken up."""
    signs = "".join(_SIGNS.get(character, character) for character in safe(untrusted))
    plain = _REFERENCE.sub(_GAP, _MARKS.sub(r"\\\1", signs)).replace("@", f"&#64;{_GAP}")
    plain = plain.replace("://", f"&#58;{_GAP}//").replace("www.", "www&#46;")
    return _LEADS.sub(r"\1\3\\\2\4", plain)
