"""What the programs of a check report, from a pipe made for that one check.

The pipe has a name that can't be guessed and is shown to the box. pytest writes into it by itself (PYTEST_ADDOPTS names
it); what other runners leave in files is copied into it in the box. Programs in the box can write to it, also those
that a worker wrote, so its content is hostile: it is capped here, and parsed with care. That a report arrives at all
distinguishes a run that finished from one that was broken off with success.
"""

import os
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex

from anyio import wait_readable

from worktrees.base.errors import os_errors
from worktrees.base.fs import make_folder
from worktrees.base.tasks import background

CAP = 32 * 1024 * 1024
CHUNK = 1024 * 1024
START = b"<?xml"
FILE = b"\0"
"""In front of each file that is copied into the pipe."""
COPY = (
    'rm -f -- $2 2>/dev/null; "$0" -c "$1"; code=$?; '
    'for file in $2; do if test -f "$file"; then printf "\\0"; cat -- "$file"; fi; done >"$3"; exit $code'
)
"""Runs the command `$1`, copies the files `$2` that it leaves into the pipe `$3`, and ends as it did."""


@dataclass(slots=True)
class ReportChannel:
    """Takes the reports of one check; there may be several, one after another, or none."""

    path: Path
    fd: int
    content: bytearray = field(default_factory=bytearray)
    too_long: bool = False

    async def listen(self) -> None:
        while True:
            await wait_readable(self.fd)
            self.drain()

    def drain(self) -> None:
        """Read everything that was written. Bytes beyond the limit are read, too, so that no writer has to wait."""
        with suppress(BlockingIOError):
            while chunk := os.read(self.fd, CHUNK):
                self.too_long = self.too_long or len(self.content) + len(chunk) > CAP
                if not self.too_long:
                    self.content += chunk

    def reports(self) -> Sequence[bytes]:
        """Each report that pytest wrote; none if they are too long."""
        return [START + part for part in self._parts(START)]

    def files(self) -> Sequence[bytes]:
        """Each file that was copied; none if they are too long."""
        return self._parts(FILE)

    def _parts(self, start: bytes) -> Sequence[bytes]:
        return [] if self.too_long else bytes(self.content).split(start)[1:]


@asynccontextmanager
async def report_channel(folder: Path) -> AsyncIterator[ReportChannel]:
    """A channel in this folder, read while the block runs, and to its end after it."""
    path = folder / f"report-{token_hex(8)}"
    with os_errors("a pipe for the report of a check can't be made"):
        make_folder(folder)
        os.mkfifo(path, stat.S_IRUSR | stat.S_IWUSR)
        fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)  # for writing, too: so it never ends meanwhile
    channel = ReportChannel(path, fd)
    try:
        async with background(channel.listen):
            yield channel
        channel.drain()
    finally:
        os.close(fd)
        path.unlink(missing_ok=True)
