"""Hostile text made fit for a terminal: no control characters, no escapes, no direction tricks, no endless lines."""

import unicodedata

LINE = 2_000  # characters of one line


def safe(text: object, *, limit: int = LINE) -> str:
    """`text` on one line, with everything a terminal could act on made visible or gone."""
    words = "".join(_shown(character) for character in str(text)[: limit * 4])
    line = " ".join(words.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def safe_block(text: str, *, lines: int = 400) -> str:
    """Several lines, each made safe; the head and the tail of what is too long."""
    rows = text.splitlines()
    if len(rows) > lines:
        half = lines // 2
        rows = [*rows[:half], f"… {len(rows) - 2 * half} lines left out …", *rows[-half:]]
    return "\n".join("".join(_shown(character) for character in row[:LINE]) for row in rows)


def _shown(character: str) -> str:
    if character in "\t\n\r":
        return "    " if character == "\t" else " "
    category = unicodedata.category(character)
    return "�" if category in {"Cc", "Cf", "Cs", "Co", "Cn"} else character
