"""Untrusted text made safe to show: without control characters, escapes, direction tricks and endless lines."""

import re
import unicodedata

LINE = 2_000  # characters of one line
_BETWEEN = re.compile(r"\n[ \t]*\n")


def safe(text: object, *, limit: int = LINE) -> str:
    """`text` on one line, without anything that a terminal acts on."""
    line = " ".join(_safe_characters(str(text)[: limit * 4]).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def safe_goal(goal: str, *, limit: int) -> str:
    """A goal on one line. Its title does not run into the text below: a point stands between paragraphs."""
    paragraphs = (safe(part) for part in _BETWEEN.split(goal[: limit * 4]))
    return safe(" · ".join(filter(None, paragraphs)), limit=limit)


def safe_block(text: str, *, lines: int = 400) -> str:
    """Several lines, each made safe; only the first and last ones of a long text."""
    rows = text.splitlines()
    if len(rows) > lines:
        half = lines // 2
        rows = [*rows[:half], f"… {len(rows) - 2 * half} lines left out …", *rows[-half:]]
    return "\n".join(_safe_characters(row[:LINE]) for row in rows)


def _safe_characters(text: str) -> str:
    """Most texts are plain ASCII, which takes no look at each character."""
    return text if text.isascii() and text.isprintable() else "".join(map(_safe_character, text))


def _safe_character(character: str) -> str:
    if character in "\t\n\r":
        return "    " if character == "\t" else " "
    category = unicodedata.category(character)
    return "�" if category in {"Cc", "Cf", "Cs", "Co", "Cn"} else character


# ---- markdown --------------------------------------------------------------------------------------------------------
# Text from others can't become markup: it makes no image that is fetched, no link, no row of a table, and on a forge
# no mention, no reference to an issue (which could close it), and no command.


_MARKS = re.compile(r"([\\`*_{}\[\]()#|~!^$])")
_LEADS = re.compile(r"^(\s*)([-+=:/])|^(\s*\d+)([.)])(?=\s|$)")
_REFERENCE = re.compile(r"(?<=[#!])(?=\d)|(?<=GH-)(?=\d)", re.IGNORECASE)
_GAP = "&#8203;"
"""A space without a width: a forge looks for names and numbers in the text as it is shown."""
_SIGNS = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def markdown_text(untrusted: str) -> str:
    """Text without markup. Anything that could start a link by itself is broken up."""
    signs = "".join(_SIGNS.get(character, character) for character in safe(untrusted))
    plain = _REFERENCE.sub(_GAP, _MARKS.sub(r"\\\1", signs)).replace("@", f"&#64;{_GAP}")
    plain = plain.replace("://", f"&#58;{_GAP}//").replace("www.", "www&#46;")
    return _LEADS.sub(r"\1\3\\\2\4", plain)


def markdown_code(untrusted: str) -> str:
    """Text between backticks, where only a backtick has a meaning, and a bar in a table."""
    return f"`{safe(untrusted).replace('`', chr(39)).replace('|', '/')}`"
