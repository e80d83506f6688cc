"""A patch as coloured lines. A line is coloured only once it is in sight, so that a long patch opens at once."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import groupby
from operator import itemgetter

from rich.style import Style
from rich.syntax import Syntax, SyntaxTheme

from dashboards.terminal.widgets.lines import Line, Page
from dashboards.terminal.widgets.side_by_side import side_by_side_page
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
