"""What sources define. A separate process parses them, because it may crash: see `outliner.py`."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from subprocess import DEVNULL, PIPE

from anyio import to_thread

from agents.tools.explore.outliner import LANGUAGES
from agents.tools.explore.outliner import SECONDS as PROCESS_SECONDS
from fleet.core.base.json_text import parse_json
from fleet.ports.agents import Repository, WorkspaceError

PROGRAM = Path(__file__).with_name("outliner.py")
SECONDS = PROCESS_SECONDS + 5.0  # by then it has ended by itself
CRASHES = 3  # after each, the source that crashed the parser is left out
LARGEST = 200_000  # characters of a source that is still parsed


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition in a source."""

    name: str
    form: str
    """`()` for a callable."""
    line: int
    owner: int
    """The index of the definition around it, or -1."""


Outlines = dict[str, tuple[Definition, ...]]


@dataclass(frozen=True, slots=True)
class Source:
    """A file in a language that has a grammar."""

    path: str
    text: str
    definitions: tuple[Definition, ...] | None
    """None if it could not be parsed."""


def is_source(path: str) -> bool:
    """Whether there is a grammar for this file."""
    return PurePosixPath(path).suffix.lower() in LANGUAGES


async def read_outlines(repository: Repository, paths: Iterable[str], *, limit: int) -> list[Source]:
    """The first `limit` sources among `paths`, except those that can't be read."""
    texts: dict[str, str] = {}
    for path in [path for path in paths if is_source(path)][:limit]:
        try:
            texts[path] = await repository.read_file(path)
        except WorkspaceError:
            continue
    parsed = await parse_sources(texts)
    return [Source(path, text, parsed.get(path)) for path, text in texts.items()]


async def parse_sources(texts: Mapping[str, str]) -> Outlines:
    """The definitions of each source; those that could not be parsed are missing."""
    parseable = {path: text for path, text in texts.items() if len(text) <= LARGEST}
    return await to_thread.run_sync(_parse_all, parseable, abandon_on_cancel=True)  # the process soon ends by itself


def _parse_all(remaining: dict[str, str]) -> Outlines:
    parsed: Outlines = {}
    for _ in range(1 + CRASHES):
        if not remaining:
            break
        parsed |= _parse(remaining)
        remaining = {path: text for path, text in remaining.items() if path not in parsed}
        remaining.pop(next(iter(remaining), ""), None)  # it answers in order, so it crashed at the first missing one
    return parsed


def _parse(sources: Mapping[str, str]) -> Outlines:
    """The definitions that one process finds before it ends or crashes."""
    command = [sys.executable, "-I", "-B", str(PROGRAM)]
    environment = {"PATH": os.defpath, "LANG": "C.UTF-8"}
    with subprocess.Popen(
        command, env=environment, cwd="/", stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True
    ) as process:
        try:
            output, _ = process.communicate(json.dumps(sources).encode("utf-8", "replace"), timeout=SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
    lines = (parse_json(line) for line in output.splitlines(keepends=True) if line.endswith(b"\n"))
    return {path: tuple(Definition(*each) for each in definitions) for path, definitions in lines}
