"""Transcripts: one JSON Lines file per conversation, for people and later analysis.

They have no effect on a run, failed writes don't stop attempts, and the key is never written.
"""

import json
import logging
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agents.models.text import SHORTEST_SECRET
from fleet.core.base.ids import is_slug

log = logging.getLogger(__name__)

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class Transcript:
    """The transcript of one conversation. Writing stops after the first error."""

    def __init__(self, descriptor: int | None, *, secrets: Collection[str] = ()) -> None:
        self._descriptor = descriptor
        self._secrets = [json.dumps(secret)[1:-1] for secret in secrets if len(secret) >= SHORTEST_SECRET]

    def write(self, event: str, **data: Any) -> None:
        if self._descriptor is None:
            return
        line = json.dumps({"event": event, **data}, ensure_ascii=True, default=str)
        for secret in self._secrets:
            line = line.replace(secret, "[key]")
        self.append(f"{line}\n".encode())

    def append(self, lines: bytes) -> None:
        """Append existing lines."""
        if self._descriptor is None:
            return
        try:
            os.write(self._descriptor, lines)
        except OSError as error:
            _warn(error)
            self._descriptor = None


class Transcripts:
    """The folder of a run's transcripts."""

    def __init__(self, folder: Path, *, secrets: Collection[str]) -> None:
        self._folder = folder
        self._secrets = secrets

    @contextmanager
    def open(self, name: str, number: int) -> Iterator[Transcript]:
        """Open `<name>.<number>.jsonl`. An existing file of an interrupted attempt is appended to."""
        descriptor = self._open(name, number)
        try:
            yield Transcript(descriptor, secrets=self._secrets)
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _open(self, name: str, number: int) -> int | None:
        if not is_slug(name):
            _warn(f"{name!r} is not a file name")
            return None
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(self._folder / f"{name}.{number}.jsonl", _FLAGS, 0o600)
        except OSError as error:
            _warn(error)
            return None


def _warn(error: object) -> None:
    log.warning("transcript lost", extra={"error": str(error)})
