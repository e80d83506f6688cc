"""Text for models and from models: prompts from files, and functions that limit, redact and repair text."""

import json
from collections.abc import Iterable
from pathlib import Path
from string import Template
from typing import Any

from fleet.core.facts.fact_parts import Instruction

_PROMPTS = Path(__file__).parents[1] / "prompts"


def render(prompt: str, **values: object) -> str:
    """Fill in the placeholders of a prompt file. Raises `KeyError` for a missing value."""
    text = (_PROMPTS / f"{prompt}.md").read_text(encoding="utf-8")
    return Template(text).substitute(values)


def capped(text: str, limit: int) -> str:
    """Cut the middle of a long text, with a note on its length."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 5
    tail = limit - head
    left_out = len(text) - head - tail
    return f"{text[:head]}\n[… {left_out} characters left out …]\n{text[len(text) - tail :]}"


SHORTEST_SECRET = 8  # redacting shorter ones would hide ordinary words


def redacted(text: str, secrets: Iterable[str]) -> str:
    """Redact secret values."""
    for secret in secrets:
        if len(secret) >= SHORTEST_SECRET:
            text = text.replace(secret, "[hidden]")
    return text


def well_formed(text: str) -> str:
    """Return valid Unicode: surrogate pairs are joined, lone surrogates replaced. File names may contain both."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def fenced(name: str, value: Any) -> str:
    """Return a compact JSON block that its content can't close."""
    text = json.dumps(value, ensure_ascii=False, default=str, separators=(",", ":")).replace("<", "\\u003c")
    return f"<{name}>{text}</{name}>"


def numbered(text: str, *, first: int = 1, last: int | None = None) -> str:
    """Number the lines from `first` to `last`. Only a line feed ends a line, as in git and grep."""
    lines = text.split("\n")
    if lines and not lines[-1]:
        lines.pop()
    chosen = lines[first - 1 : last]
    return "\n".join(f"{number:6}\t{line}" for number, line in enumerate(chosen, start=first))


# ---- instructions ----------------------------------------------------------------------------------------------------
# The operator's instructions as models see them. Apart from its brief, a model only obeys these.


TAG = "operator"


def operator_text(instruction: Instruction, number: int | None = None) -> str:
    """Return a block that its content can't close. With a number it is unique."""
    numbered = {} if number is None else {"number": number}
    return well_formed(fenced(TAG, {**numbered, "by": instruction.by, "instruction": instruction.text}))


def without_operator_tags(text: str) -> str:
    """Remove operator blocks from untrusted text that is included in fleet's text."""
    return text.replace(f"<{TAG}", f"[{TAG}").replace(f"</{TAG}", f"[/{TAG}")


def is_operator_text(text: str) -> bool:
    """Whether a text is an operator block. Untrusted text only reaches models as tool results, not as text blocks."""
    return text.startswith(f"<{TAG}>")
