"""What was said in each conversation: one JSON-lines file each, for people and for later study.

Never decides anything, never stops an attempt, never holds the key.
"""

import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from fleet.core.ids import is_slug

log = logging.getLogger(__name__)

_HIDDEN = "[key]"
_SHORTEST_SECRET = 8  # a shorter key is a placeholder, and would blot out ordinary words


class Transcript:
    """One conversation's file. What can't be written is lost, and said once."""

    def __init__(self, file: TextIO | None, *, secret: str = "") -> None:
        self._file = file
        self._secret = secret if len(secret) >= _SHORTEST_SECRET else ""

    def write(self, event: str, **data: Any) -> None:
        if self._file is None:
            return
        line = json.dumps({"event": event, **data}, ensure_ascii=True, default=str)
        if self._secret:
            line = line.replace(json.dumps(self._secret)[1:-1], _HIDDEN)
        try:
            self._file.write(line + "\n")
            self._file.flush()
        except OSError as error:
            log.warning("transcript lost", extra={"error": str(error)})
            self._file = None


class Transcripts:
    """The folder of a run's transcripts."""

    def __init__(self, folder: Path, *, secret: str) -> None:
        self._folder = folder
        self._secret = secret

    @contextmanager
    def open(self, name: str, number: int) -> Iterator[Transcript]:
        """`<name>.<number>.jsonl`, appended to where it exists: an interrupted attempt is told twice."""
        file = self._opened(name, number)
        try:
            yield Transcript(file, secret=self._secret)
        finally:
            if file is not None:
                _close(file)

    def _opened(self, name: str, number: int) -> TextIO | None:
        if not is_slug(name):
            log.warning("transcript lost", extra={"error": f"{name!r} is no file name"})
            return None
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.fdopen(os.open(self._folder / f"{name}.{number}.jsonl", flags, 0o600), "a", encoding="utf-8")
        except OSError as error:
            log.warning("transcript lost", extra={"error": str(error)})
            return None


def _close(file: TextIO) -> None:
    try:
        file.close()
    except OSError as error:
        log.warning("transcript lost", extra={"error": str(error)})
