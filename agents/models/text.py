"""Text for a model and from one: prompts from their files; text bounded, redacted, well-formed."""

import json
from collections.abc import Iterable
from pathlib import Path
from string import Template
from typing import Any

from fleet.core.facts.fact_parts import Instruction

_PROMPTS = Path(__file__).parents[1] / "prompts"


def render(prompt: str, **values: object) -> str:
    """The prompt in this file with its placeholders filled in. Raises `KeyError` for a missing value."""
    text = (_PROMPTS / f"{prompt}.md").read_text(encoding="utf-8")
    return Template(text).substitute(values)


def capped(text: str, limit: int) -> str:
    """`text`, or its head and its tail with a note on how much is missing between them."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 5
    tail = limit - head
    left_out = len(text) - head - tail
    return f"{text[:head]}\n[… {left_out} characters left out …]\n{text[len(text) - tail :]}"


SHORTEST_SECRET = 8  # a shorter one would hide ordinary words


def redacted(text: str, secrets: Iterable[str]) -> str:
    """`text` without secret values."""
    for secret in secrets:
        if len(secret) >= SHORTEST_SECRET:
            text = text.replace(secret, "[hidden]")
    return text


def well_formed(text: str) -> str:
    """`text` as valid Unicode: surrogate pairs are joined, lone surrogates replaced. File names may hold both."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def fenced(name: str, value: Any) -> str:
    """A block of JSON, as short as can be, that nothing inside can close."""
    text = json.dumps(value, ensure_ascii=False, default=str, separators=(",", ":")).replace("<", "\\u003c")
    return f"<{name}>{text}</{name}>"


def numbered(text: str, *, first: int = 1, last: int | None = None) -> str:
    """Lines with their numbers, from `first` to `last`. Only a line feed ends a line, as for git and grep."""
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    chosen = lines[first - 1 : last]
    return "\n".join(f"{number:6}\t{line}" for number, line in enumerate(chosen, start=first))


# ---- instructions ----------------------------------------------------------------------------------------------------
# An instruction of the operator as a model reads it: the only text, besides its brief, that it is to obey.


TAG = "operator"


def operator_text(instruction: Instruction, number: int | None = None) -> str:
    """A block that nothing inside can close; with a number no other block is like it."""
    numbered = {} if number is None else {"number": number}
    return well_formed(fenced(TAG, {**numbered, "by": instruction.by, "instruction": instruction.text}))


def without_operator_tags(text: str) -> str:
    """A text of others that becomes a part of a text of ours: it holds no block of the operator."""
    return text.replace(f"<{TAG}", f"[{TAG}").replace(f"</{TAG}", f"[/{TAG}")


def is_operator_text(text: str) -> bool:
    """Whether a text of ours is such a block. Texts of others reach a model as results of tools, never as texts."""
    return text.startswith(f"<{TAG}>")
