"""A document as Markdown: the same words and tables; a chart is a row of characters and its sentence.

Text of others can't make markup: no image that is fetched, no link, no mention, no row of a table.
"""

import re
from collections.abc import Iterator
from typing import assert_never

from dashboards.report.blocks import Bars, Block, Cell, Chart, Code, Commands, Document, Log, Numbers, Table, Words
from dashboards.report.svg import sparkline
from dashboards.safe import safe, safe_block

LINES = 60  # of one paragraph
_MARKS = re.compile(r"([\\`*_{}\[\]()#|~!^$])")
_LEADS = re.compile(r"^(\s*)([-+=:]|\d+(?=[.)]))")
_SIGNS = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;"}


def markdown(document: Document) -> str:
    return "\n".join(_document(document))


def _document(document: Document) -> Iterator[str]:
    yield f"# {_text(document.title)}\n"
    for line in document.lead:
        yield f"{_text(line)}\n"
    for section in document.sections:
        yield f"## {section.title}\n"
        for block in section.blocks:
            yield from _block(block)
            yield ""


def _block(block: Block) -> Iterator[str]:  # noqa: C901, PLR0912 - one case a block
    match block:
        case Words(text=text, quoted=True):
            yield "\n".join(f"> {_text(line)}" for line in safe_block(text, lines=LINES).splitlines())
        case Words(text=text):
            yield _text(text)
        case Numbers(numbers=numbers):
            yield "| | | |\n|---|---|---|"
            for one in numbers:
                yield f"| {_text(one.label)} | **{_text(one.value)}** | {_text(one.note)} |"
        case Table():
            yield f"**{_text(block.caption)}**\n"
            yield f"| {' | '.join(map(_text, block.head))} |"
            yield f"|{'|'.join('---:' if index in block.numeric else '---' for index in range(len(block.head)))}|"
            for row in block.rows:
                yield f"| {' | '.join(map(_cell, row))} |"
        case Chart():
            width = max(len(line.name) for line in block.lines) if block.lines else 0
            yield f"**{_text(block.title)}.** {_text(block.says)}\n\n```text"
            for line in block.lines:
                yield f"{safe(line.name).replace('`', '')!s:<{width}}  {sparkline(line.points, block.seconds)}"
            yield "```"
        case Bars():
            yield f"**{_text(block.title)}.** {_text(block.says)}"
        case Commands(commands=commands):
            for command, what in commands:
                yield f"- {_code(command)}: {_text(what)}"
        case Log():
            yield from _log(block)
        case _:
            assert_never(block)


def _log(log: Log) -> Iterator[str]:
    """Between fences, which no line of it can close."""
    yield f"**{_text(log.title)}**\n\n```text"
    yield from (safe_block(line).replace("`", "'") for line in log.lines)
    yield "```"


def _cell(cell: Cell) -> str:
    return _code(cell.text) if isinstance(cell, Code) else _text(cell)


def _code(text: str) -> str:
    """Between backticks nothing means anything but a backtick, and a bar in a table."""
    return f"`{safe(text).replace('`', chr(39)).replace('|', '/')}`"


def _text(untrusted: str) -> str:
    """Text that only is text. What could begin a link by itself is broken up."""
    signs = "".join(_SIGNS.get(character, character) for character in safe(untrusted))
    plain = _MARKS.sub(r"\\\1", signs).replace("://", "&#58;//").replace("www.", "www&#46;")
    return _LEADS.sub(r"\1\\\2", plain)
