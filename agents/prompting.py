"""Prompts are files. A placeholder that nobody fills is an error."""

from pathlib import Path
from string import Template

_PROMPTS = Path(__file__).with_name("prompts")


def render(name: str, **values: object) -> str:
    """The prompt called `name` with its placeholders filled. Raises `KeyError` for a missing one."""
    text = (_PROMPTS / f"{name}.md").read_text(encoding="utf-8")
    return Template(text).substitute(values)
