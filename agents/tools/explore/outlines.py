"""What sources define, found out by a process that may die of them: see `outliner.py`."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from subprocess import DEVNULL, PIPE

from anyio import to_thread

from agents.tools.outliner import LANGUAGES
from agents.tools.outliner import SECONDS as ITS_SECONDS

PROGRAM = Path(__file__).with_name("outliner.py")
SECONDS = ITS_SECONDS + 5.0  # by then it has ended itself
DEATHS = 3  # a source that kills the parser is left out, so often
LARGEST = 200_000  # characters of a source that is still parsed


@dataclass(frozen=True, slots=True)
class Definition:
    """Something a source defines."""

    name: str
    form: str
    """`()` for what is called."""
    line: int
    owner: int
    """The place of the definition around it, or -1."""


Outlines = dict[str, tuple[Definition, ...]]


def is_known(path: str) -> bool:
    """Whether there is a grammar for what this file holds."""
    return PurePosixPath(path).suffix.lower() in LANGUAGES


async def outlines(sources: Mapping[str, str]) -> Outlines:
    """The definitions of each source; those that could not be parsed are missing."""
    wanted = {path: text for path, text in sources.items() if is_known(path) and len(text) <= LARGEST}
    return await to_thread.run_sync(_outlines, wanted, abandon_on_cancel=True)  # its process ends itself soon


def _outlines(left: dict[str, str]) -> Outlines:
    found: Outlines = {}
    for _ in range(1 + DEATHS):
        if not left:
            break
        found |= (answered := _parsed(left))
        left = {path: text for path, text in left.items() if path not in answered}
        left.pop(next(iter(left), ""), None)  # it answers in order: at the first that is left it died
    return found


def _parsed(sources: Mapping[str, str]) -> Outlines:
    """What one process says of them, as far as it came."""
    command = [sys.executable, "-I", "-B", str(PROGRAM)]
    environment = {"PATH": os.defpath, "LANG": "C.UTF-8"}
    with subprocess.Popen(
        command, env=environment, cwd="/", stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True
    ) as process:
        try:
            said, _ = process.communicate(json.dumps(sources).encode("utf-8", "replace"), timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = process.communicate()
    return dict(_read(line) for line in said.splitlines(keepends=True) if line.endswith(b"\n"))


def _read(line: bytes) -> tuple[str, tuple[Definition, ...]]:
    path, found = json.loads(line)
    return str(path), tuple(Definition(*one) for one in found)
