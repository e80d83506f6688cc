"""Commands as documents show them, held against the program: its verbs and options, and the targets of make."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import typer.main

from fleet.cli.entry import app
from tests.docs.page import Command, parse_page

MAKEFILE = Path(__file__).parents[2] / "Makefile"
FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
_OURS = re.compile(r"(?:[A-Z_]+=\S+ )*(?:fleet|make) [a-z]")


@dataclass(frozen=True, slots=True)
class Shown:
    """A command of ours that a document shows: a verb of the program, or a target of make."""

    path: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.path}: {' '.join(self.words)}"


def commands_in(path: str, text: str) -> Iterator[Shown]:
    """Each `fleet …` and `make …` at the beginning of a piece of shell or of inline code."""
    page = parse_page(Path(path), text)
    blocks = [step.text for step in page.steps if isinstance(step, Command)] + [left.text for left in page.not_run]
    yield from (shown for block in blocks for shown in _in_shell(path, block))
    yield from (shown for piece in INLINE.findall(FENCED.sub("", text)) for shown in _in_shell(path, piece))


def problem_with(shown: Shown) -> str | None:
    """Why there is no such command."""
    program, *rest = shown.words
    if program == "make":
        targets = re.findall(r"^([a-z0-9-]+):", MAKEFILE.read_text(encoding="utf-8"), re.MULTILINE)
        return next((f"there is no target {word}" for word in rest if "=" not in word and word not in targets), None)
    return _problem(rest)


def group(command: Any) -> dict[str, Any]:
    """The verbs below a command. Typer brings its own copy of click, which has no types to name."""
    return getattr(command, "commands", {})


def _in_shell(path: str, text: str) -> Iterator[Shown]:
    for line in text.removeprefix("$ ").replace("\n$ ", "\n").splitlines():
        for piece in re.split(r"&&|\||;| &$", re.split(r"\s#\s|\s#$", line.strip())[0]):
            if _OURS.match(piece.strip()):
                found = shlex.split(piece)
                program = next(index for index, word in enumerate(found) if word in {"fleet", "make"})
                yield Shown(path, tuple(found[program:]))


@cache
def _root() -> Any:
    return typer.main.get_command(app)


def _problem(words: list[str]) -> str | None:
    command: Any = _root()
    rest = list(words)
    while group(command):
        verb = rest.pop(0) if rest else ""
        if verb not in group(command):
            return f"there is no verb {verb}"
        command = group(command)[verb]
    known = {name for parameter in command.params for name in parameter.opts} | {"--help"}
    wrong = next((word for word in rest if re.match(r"--?[a-z]", word) and word.split("=")[0] not in known), None)
    return f"there is no option {wrong}" if wrong else None
