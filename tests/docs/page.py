"""What a page of the documentation asks to be done: its stage, its files and its commands, in order.

    ```console
    $ fleet status
    ● running  again  ...
    ```

`$` begins a command and `>` continues it; the lines below are what it prints: `...` alone is any lines, within a
line anything. Without lines below, what it prints is not compared. Shas, times, dollars and the widths of columns may
differ. A command has to end with 0, unless the next one is `echo $?`. Comments, which readers don't see, set the stage:

    <!-- stage: project=greeter model=tutorial -->         at the top: a fresh project, a model, variables
    <!-- stage: after=greeter -->                          or a project with a run that landed, only to look at
    <!-- do: sleep 1 -->                                   a command that a reader need not type
    <!-- file: plan.toml -->                               before a block: it is written into this file
    <!-- not run: it needs a real key -->                  before a block: its verbs and options are compared, no more
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SHELLS = {"console", "sh", "bash", "shell"}
_STEP = re.compile(
    r"^<!-- do: (?P<do>[^\n]*?) -->$"
    r"|(?:^<!-- (?P<note>[^\n]*?) -->\n)?^(?P<in> *)```(?P<as>\w*)\n(?P<body>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
_STAGE = re.compile(r"^<!-- stage: (.*?) -->$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Command:
    """What is typed at a prompt, and the lines that are shown below it."""

    line: int
    text: str
    shown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class File:
    """What the reader is asked to write into a file."""

    line: int
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class NotRun:
    """A block that is only parsed, and why."""

    line: int
    why: str
    text: str


@dataclass(frozen=True, slots=True)
class Page:
    """A document that shows commands."""

    path: Path
    stage: tuple[tuple[str, str], ...]
    steps: tuple[Command | File, ...]
    not_run: tuple[NotRun, ...]
    unmarked: tuple[int, ...]
    """Lines with blocks of shell that are neither run nor marked."""


def read_page(path: Path) -> Page:
    return parse_page(path, path.read_text(encoding="utf-8"))


def parse_page(path: Path, text: str) -> Page:
    staged = _STAGE.search(text)
    stage = tuple(_pair(word) for word in shlex.split(staged[1])) if staged else ()
    steps: list[Command | File] = []
    left: list[NotRun] = []
    unmarked: list[int] = []
    for block in _STEP.finditer(text):
        if block["do"]:
            steps.append(Command(_line(text, block.start()), block["do"]))
            continue
        line = _line(text, block.start("as"))
        note, body = block["note"] or "", _dedented(block["body"], len(block["in"]))
        if note.startswith("file: "):
            steps.append(File(line, note.removeprefix("file: "), body))
        elif note.startswith("not run: ") and block["as"] in SHELLS:
            left.append(NotRun(line, note.removeprefix("not run: "), body))
        elif block["as"] == "console":
            steps += _commands(body, line)
        elif block["as"] in SHELLS:
            unmarked.append(line)
    return Page(path, stage, tuple(steps), tuple(left), tuple(unmarked))


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def _pair(word: str) -> tuple[str, str]:
    name, _, value = word.partition("=")
    return name, value


def _dedented(text: str, width: int) -> str:
    return "".join(line[width:] if line[:width].isspace() else line for line in text.splitlines(keepends=True))


def _commands(body: str, line: int) -> Iterator[Command]:
    at, typed, shown = 0, "", list[str]()
    for number, text in enumerate(body.splitlines(), line + 1):
        if text.startswith("$ "):
            if typed:
                yield Command(at, typed, tuple(shown))
            at, typed, shown = number, text[2:], []
        elif typed and not shown and text.startswith("> "):
            typed += f"\n{text[2:]}"
        else:
            assert typed, f"line {number}: a piece of console begins with `$ `"
            shown.append(text)
    if typed:
        yield Command(at, typed, tuple(shown))


# ---- what is printed ------------------------------------------------------------------------------------------------

_VARIABLE = (
    (r"\.\.\.", r".*"),
    (r"\b(?=[0-9a-f]*[0-9])(?:[0-9a-f]{40}|[0-9a-f]{7})\b", r"[0-9a-f]{7,40}"),
    (r"-(?=[0-9a-f]*[0-9])[0-9a-f]{4}\b", r"-[0-9a-f]{4}"),
    (r"\$[0-9][0-9.,]*", r"\$[0-9][0-9.,]*"),
    (r"[0-9]{4}-[0-9]{2}-[0-9]{2}", r"[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    (r"\b[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?\b", r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?"),
    (r"\b[0-9]+(?:\.[0-9]+)? (?:ms|s|min|h)\b", r"[0-9.]+ (?:ms|s|min|h)"),
    (r"\b[0-9]+(?:\.[0-9]+)?s\b", r"(?:[0-9]+m)?[0-9.]+s"),
    (r"[ ─]+", r"[ ─]+"),
)
_ANY = re.compile("|".join(f"({shown})" for shown, _ in _VARIABLE))


def matches(shown: tuple[str, ...], printed: str) -> bool:
    """Whether a document shows what was printed."""
    pattern = "".join(r"(?:.*\n)*?" if line.strip() == "..." else rf"{_pattern(line)}\s*\n" for line in shown)
    lines = "".join(f"{line.rstrip()}\n" for line in printed.rstrip().splitlines())
    return re.fullmatch(pattern, lines) is not None


def _pattern(line: str) -> str:
    found, at = "", 0
    for piece in _ANY.finditer(line.rstrip()):
        found += re.escape(line[at : piece.start()]) + _VARIABLE[(piece.lastindex or 1) - 1][1]
        at = piece.end()
    return found + re.escape(line.rstrip()[at:])
