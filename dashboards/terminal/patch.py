"""A patch as coloured lines. A line is coloured only once it is in sight, so that a long patch opens at once."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, zip_longest
from operator import itemgetter

from rich.style import Style
from rich.syntax import Syntax, SyntaxTheme

from dashboards.terminal.lines import Line, Page, clipped
from dashboards.text.safe import safe_block

LONGEST = 400  # characters of a line that are coloured; the rest stays plain
LINES = 50_000
TONES = {
    "Keyword": "keyword",
    "String": "string",
    "Comment": "comment",
    "Number": "number",
    "Function": "name",
    "Class": "name",
}
"""The tone of a token, by the last part of its name that is listed here."""


class Tones(SyntaxTheme):
    """Marks tokens with our tones instead of colours: which colours those are depends on the screen."""

    @classmethod
    def get_style_for_token(cls, token_type: Sequence[str]) -> Style:
        tone = next((TONES[part] for part in reversed(tuple(map(str, token_type))) if part in TONES), "")
        return Style(meta={"tone": tone})

    @classmethod
    def get_background_style(cls) -> Style:
        return Style()


def patch_page(patch: str, *, is_split: bool = False) -> Page:
    """A page of a unified diff, or of both sides beside each other. All of it is untrusted text."""
    lines = safe_block(patch, lines=LINES).split("\n")
    files = _files(lines)
    coloured = _colouring()
    if is_split:
        return side_by_side_page(lines, files, coloured)
    return Page(
        keys=("-",) * len(lines),
        draw=lambda index, _: coloured(lines[index], files[index]),
        empty="No changes.",
        is_text=True,
        plain=lambda index: lines[index],
    )


def _files(lines: Sequence[str]) -> list[str]:
    """The file that each line belongs to; empty for the lines above a file's first hunk."""
    names, name, in_hunk = [], "", False
    for line in lines:
        if line.startswith("diff --git "):
            name, in_hunk = line.rpartition(" b/")[2], False
        elif line.startswith("@@"):
            in_hunk = True
        names.append(name if in_hunk else "")
    return names


def _colouring() -> Callable[[str, str], Line]:
    @lru_cache(maxsize=2_000)
    def coloured(line: str, file: str) -> Line:
        if line.startswith("diff --git "):
            return ((line, "head"),)
        if line.startswith("@@"):
            return ((line, "hunk"),)
        if not file:
            return ((line, "dim"),)
        sign, code = line[:1], line[1:]
        tone = {"+": "added", "-": "removed"}.get(sign, "")
        return ((f"{sign} ", tone), *_tokens(code, file, removed=sign == "-"))

    return coloured


def _tokens(code: str, file: str, *, removed: bool) -> Line:
    syntax = _syntax(file.rpartition("/")[2])
    if syntax is None or removed or len(code) > LONGEST:
        return ((code, "removed" if removed else ""),)
    text = syntax.highlight(code)
    tones = [""] * len(code)
    for span in text.spans:
        if isinstance(span.style, Style) and (tone := span.style.meta.get("tone")):
            tones[span.start : span.end] = [tone] * (min(span.end, len(code)) - span.start)
    return tuple(
        ("".join(char for char, _ in group), tone)
        for tone, group in groupby(zip(code, tones, strict=True), key=itemgetter(1))
    )


@lru_cache(maxsize=256)
def _syntax(name: str) -> Syntax | None:
    """The highlighter for a file of this name; None for an unknown kind of file."""
    lexer = Syntax.guess_lexer(name)
    return None if lexer == "default" else Syntax("", lexer, theme=Tones(), tab_size=4)


# ---- sbs -------------------------------------------------------------------------------------------------------------
# A patch in two columns: the old lines with their numbers beside the new ones.


HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)")
NUMBER = 5  # cells of a line's number
MIDDLE = " │ "


@dataclass(frozen=True, slots=True)
class Side:
    """A line of one side: its number, and the line with its sign."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Row:
    """Two lines beside each other; what belongs to both is `whole`."""

    file: str
    whole: str | None = None
    old: Side | None = None
    new: Side | None = None


def side_by_side_page(lines: Sequence[str], files: Sequence[str], coloured: Callable[[str, str], Line]) -> Page:
    """A page of the lines of a unified diff. `coloured` gives the colours of a line with its sign."""
    rows = list(_rows(lines, files))

    def draw(index: int, width: int) -> Line:
        row = rows[index]
        if row.whole is not None:
            return coloured(row.whole, row.file)
        half = (width - len(MIDDLE)) // 2
        return (*_half(row.old, row.file, half, coloured), (MIDDLE, "dim"), *_half(row.new, row.file, half, coloured))

    return Page(
        keys=("-",) * len(rows),
        draw=draw,
        empty="No changes.",
        is_text=True,
        plain=lambda index: _plain(rows[index]),
    )


def _half(side: Side | None, file: str, width: int, coloured: Callable[[str, str], Line]) -> Line:
    if side is None:
        return ((" " * width, ""),)
    return ((f"{side.number:>{NUMBER}} ", "dim"), *clipped(coloured(side.text, file), width - NUMBER - 1))


def _plain(row: Row) -> str:
    return row.whole or "\n".join(side.text for side in (row.old, row.new) if side is not None)


def _rows(lines: Sequence[str], files: Sequence[str]) -> Iterator[Row]:
    old = new = 0
    removed, added, current = list[Side](), list[Side](), ""
    for line, file in zip(lines, files, strict=True):
        sign = line[:1] if file and not line.startswith("@@") else ""
        if sign == "-":
            removed.append(Side(old, line))
            old, current = old + 1, file
            continue
        if sign == "+":
            added.append(Side(new, line))
            new, current = new + 1, file
            continue
        yield from _changed(removed, added, current)
        removed, added = [], []
        if sign == " ":
            yield Row(file, old=Side(old, line), new=Side(new, line))
            old, new = old + 1, new + 1
            continue
        if (numbers := HUNK.match(line)) is not None:
            old, new = int(numbers[1]), int(numbers[2])
        yield Row(file, whole=line)
    yield from _changed(removed, added, current)


def _changed(removed: Sequence[Side], added: Sequence[Side], file: str) -> Iterator[Row]:
    for one, other in zip_longest(removed, added):
        yield Row(file, old=one, new=other)
