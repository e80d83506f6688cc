"""Text for a model, of bounded length: the head and the tail say most, the middle is what can be left out."""

import json
from collections.abc import Iterable
from typing import Any


def capped(text: str, limit: int) -> str:
    """`text`, or its head and its tail with a word on what is missing."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 5
    tail = limit - head
    left_out = len(text) - head - tail
    return f"{text[:head]}\n[… {left_out} characters left out …]\n{text[len(text) - tail :]}"


_SHORTEST_SECRET = 8  # a shorter one would blot out ordinary words


def hidden(text: str, secrets: Iterable[str]) -> str:
    """`text` without the values that nobody else shall see."""
    for secret in secrets:
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, "[hidden]")
    return text


def well_formed(text: str) -> str:
    """`text` as Unicode: halves of characters are put together, lone ones replaced. Names of files hold such things."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def fenced(name: str, value: Any) -> str:
    """A block of JSON that nothing inside can close."""
    text = json.dumps(value, ensure_ascii=False, default=str).replace("<", "\\u003c")
    return f"<{name}>{text}</{name}>"


def numbered(text: str, *, first: int = 1, last: int | None = None) -> str:
    """Lines with their numbers, from `first` to `last`. Only a line feed ends a line, as for git and grep."""
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    chosen = lines[first - 1 : last]
    return "\n".join(f"{number:6}\t{line}" for number, line in enumerate(chosen, start=first))
