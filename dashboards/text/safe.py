"""Make untrusted text safe to show: remove control characters, escapes and direction overrides, and cut long lines."""

import re
import unicodedata

LINE = 2_000  # characters of one line
_BETWEEN = re.compile(r"\n[ \t]*\n")


def safe(text: object, *, limit: int = LINE) -> str:
    """Return `text` on one line, without control characters and escape sequences."""
    line = " ".join(_safe_characters(str(text)[: limit * 4]).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def safe_goal(goal: str, *, limit: int) -> str:
    """A goal on one line, with a dot between its paragraphs."""
    paragraphs = (safe(part) for part in _BETWEEN.split(goal[: limit * 4]))
    return safe(" · ".join(filter(None, paragraphs)), limit=limit)


def safe_block(text: str, *, lines: int = 400) -> str:
    """Make each line safe, and keep only the first and last lines of a long text."""
    rows = text.splitlines()
    if len(rows) > lines:
        half = lines // 2
        rows = [*rows[:half], f"… {len(rows) - 2 * half} lines omitted …", *rows[-half:]]
    return "\n".join(_safe_characters(row[:LINE]) for row in rows)


def _safe_characters(text: str) -> str:
    """Plain ASCII, the most common case, skips the check of each character."""
    return text if text.isascii() and text.isprintable() else "".join(map(_safe_character, text))


def _safe_character(character: str) -> str:
    if character in "\t\n\r":
        return "    " if character == "\t" else " "
    category = unicodedata.category(character)
    return "�" if category in {"Cc", "Cf", "Cs", "Co", "Cn"} else character


# ---- markdown --------------------------------------------------------------------------------------------------------
# Untrusted text can't become markup. It can't load an image, or add a link or a table row. On a forge, it also can't
# mention a user, reference an issue (which could close it) or run a command.


_MARKS = re.compile(r"([\\`*_{}\[\]()#|~!^$])")
_LEADS = re.compile(r"^(\s*)([-+=:/])|^(\s*\d+)([.)])(?=\s|$)")
_REFERENCE = re.compile(r"(?<=[#!])(?=\d)|(?<=GH-)(?=\d)", re.IGNORECASE)
_GAP = "&#8203;"
"""A zero-width space: a forge looks for names and numbers in the rendered text."""
_SIGNS = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def markdown_text(untrusted: str) -> str:
    """Escape markup, and break up text that a forge would turn into a link."""
    signs = "".join(_SIGNS.get(character, character) for character in safe(untrusted))
    plain = _REFERENCE.sub(_GAP, _MARKS.sub(r"\\\1", signs)).replace("@", f"&#64;{_GAP}")
    plain = plain.replace("://", f"&#58;{_GAP}//").replace("www.", "www&#46;")
    return _LEADS.sub(r"\1\3\\\2\4", plain)


def markdown_code(untrusted: str) -> str:
    """Inline code. Replaces backticks, and the bar that would end a table cell."""
    return f"`{safe(untrusted).replace('`', chr(39)).replace('|', '/')}`"
