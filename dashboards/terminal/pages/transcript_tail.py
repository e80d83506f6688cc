"""Follows a conversation: reads what was appended to its file, and keeps its lines."""

from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

from dashboards.terminal.widgets.lines import Line, Page, text_page
from dashboards.text.transcript import transcript_lines
from fleet.core.base.json_text import parse_json

LINES = 20_000  # kept in memory
BYTES = 1_000_000  # read at once
BEGINS = ("── ", "   → ", "   ← ", "   thinks")  # what a part of a conversation begins with
ACCOUNTING = frozenset({"request_id", "usage", "stop_reason"})  # fields of an entry that only `fleet logs` shows


class TranscriptTail:
    """Follows the file of one conversation."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._rest = b""
        self._lines: deque[Line] = deque(maxlen=LINES)

    def catch_up(self) -> bool:
        """Read what is new; return whether there was anything."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(BYTES)
        except (OSError, ValueError):  # ValueError: not a file name
            return False
        self._offset += len(data)
        *complete, self._rest = (self._rest + data).split(b"\n")
        for line in complete:
            self._take(line)
        return bool(complete)

    def _take(self, line: bytes) -> None:
        try:
            entry = parse_json(line)
        except ValueError:  # a line that a kill cut off
            return
        if isinstance(entry, dict):
            entry = {name: value for name, value in entry.items() if name not in ACCOUNTING}
            self._lines += (((text, _tone(text)),) for text in transcript_lines([entry]))

    def page(self, *, folded: bool = False) -> Page:
        """The lines; folded, those that begin a message, a call or a result, with the first line of each."""
        lines = list(_folded(self._lines)) if folded else list(self._lines)
        return text_page(lines, empty="No messages yet.", tail=True)


def _folded(lines: Iterable[Line]) -> Iterator[Line]:
    """One line for each part of a conversation: how it begins, and the first words of it."""
    begun: Line = ()
    for line in lines:
        if any(line[0][0].startswith(mark) for mark in BEGINS):
            if begun:
                yield begun
            begun = line
        elif begun:
            yield (*begun, (f"  {line[0][0].strip()}", "dim"))
            begun = ()
    if begun:
        yield begun


def _tone(text: str) -> str:
    if text.startswith("── "):
        return "accent"
    if text.startswith("   ← error"):
        return "bad"
    return "bold" if text.startswith(("   → ", "   ← ")) else ""
