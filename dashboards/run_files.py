"""The files of a run as every face reads them: conversations as they grow, and the output of checks."""

from collections.abc import Iterator
from pathlib import Path

from dashboards.text.event_text import transcript_lines
from fleet.core.base.output import parse_json
from fleet.core.facts.facts import CheckRun
from fleet.read.follow import Feed

LOG_BYTES = 400_000
BYTES = 1_000_000  # of a conversation, read at once
ACCOUNTING = frozenset({"request_id", "usage", "stop_reason"})  # fields of an entry that only `fleet logs` shows


class TranscriptTail:
    """Follows the file of one conversation."""

    def __init__(self, path: Path, *, last: int | None = None) -> None:
        """Begins `last` bytes before the end, or at the beginning."""
        self._path, self._offset, self._rest = path, 0, b""
        if last is not None and path.is_file():
            self._offset = max(0, path.stat().st_size - last)

    def new(self) -> Iterator[list[str]]:
        """The lines of each entry that was written since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read(BYTES)
        except (OSError, ValueError):  # ValueError: not a file name
            return
        self._offset += len(data)
        *complete, self._rest = (self._rest + data).split(b"\n")
        for line in complete:
            yield list(_lines(line))


def _lines(line: bytes) -> Iterator[str]:
    try:
        entry = parse_json(line)
    except ValueError:  # a line that a kill cut off, or the first one of a tail
        return
    if isinstance(entry, dict):
        yield from transcript_lines([{name: each for name, each in entry.items() if name not in ACCOUNTING}])


def check_output(feed: Feed, check: CheckRun) -> str:
    """The beginning of its log, or the end of its output where no log was kept."""
    if not check.log:
        return check.output
    try:
        with feed.log(check.log).open("rb") as file:
            return file.read(LOG_BYTES).decode("utf-8", "replace") or check.output
    except (OSError, ValueError):  # ValueError: not a file name
        return check.output
