"""A conversation as it goes on: reads what was added to its file, and keeps the lines of it."""

import json
from collections import deque
from pathlib import Path

from dashboards.terminal.lines import Line, Page, reading
from dashboards.transcript import transcript_lines

KEPT = 20_000  # lines
BOOKS = frozenset({"request_id", "usage", "stop_reason"})  # of an entry; `fleet logs` tells them
AT_ONCE = 1_000_000  # bytes read in one go


class Spoken:
    """Follows the file of one conversation."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""
        self._lines: deque[Line] = deque(maxlen=KEPT)

    def catch_up(self) -> bool:
        """Read what is new; whether anything was."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(AT_ONCE)
        except (OSError, ValueError):  # ValueError: a name that is no file's
            return False
        self._offset += len(data)
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            self._take(line)
        return bool(whole)

    def _take(self, line: bytes) -> None:
        try:
            entry = json.loads(line)
        except ValueError:  # the line that a kill cut off
            return
        if isinstance(entry, dict):
            entry = {name: value for name, value in entry.items() if name not in BOOKS}
            self._lines += (((text, _tone(text)),) for text in transcript_lines([entry]))

    def page(self) -> Page:
        return reading(list(self._lines), empty="nothing was said yet", tail=True)


def _tone(text: str) -> str:
    if text.startswith("── "):
        return "accent"
    if text.startswith("   ← error"):
        return "bad"
    return "bold" if text.startswith(("   → ", "   ← ")) else ""
