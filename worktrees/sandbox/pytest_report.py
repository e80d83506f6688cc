"""The tests that pytest ran in a check, from a report that it writes into a pipe made for that one check.

The pipe has a name that can't be guessed, is shown to the box and named in PYTEST_ADDOPTS. Programs in the box can
write to it, also those that a worker wrote, so its content is hostile: it is capped, and parsed without entities. That
a report arrives at all distinguishes a run that finished from one that was broken off with success.
"""

import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from xml.parsers import expat

from anyio import wait_readable

from fleet.core.state.facts import RanTests
from worktrees.base.errors import os_errors
from worktrees.base.fs import make_folder
from worktrees.base.tasks import background

CAP = 32 * 1024 * 1024
CHUNK = 1024 * 1024
START = b"<?xml"
NOT_RUN, NOT_PASSED, FAILED = {"skipped", "error"}, {"skipped", "error", "failure"}, {"error", "failure"}


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

    def tests(self) -> RanTests | None:
        """The tests in all reports; None without a report, or where one can't be parsed."""
        reports = [START + part for part in bytes(self.content).split(START)[1:]]
        if not reports or self.too_long:
            return None
        ran, passed, failed = set[str](), set[str](), set[str]()
        try:
            for report in reports:
                _parse(report, ran, passed, failed)
        except (expat.ExpatError, ValueError):
            return None
        return RanTests(ran=frozenset(ran), passed=frozenset(passed), failed=len(failed))


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


def _parse(report: bytes, ran: set[str], passed: set[str], failed: set[str]) -> None:
    """Add the tests of one report by file, class and name, all the parameters of a function as one."""
    test, tags = "", set[str]()

    def begin(tag: str, attributes: dict[str, str]) -> None:
        nonlocal test
        if tag == "testcase":
            tags.clear()
            full_name = "::".join(attributes.get(key, "") for key in ("file", "classname", "name"))
            test = full_name.partition("[")[0]
        tags.add(tag)

    def end(tag: str) -> None:
        if tag == "testcase":
            if not tags & NOT_RUN:
                ran.add(test)
            if not tags & NOT_PASSED:
                passed.add(test)
            if tags & FAILED:
                failed.add(test)

    def refuse(*_: object) -> None:
        raise ValueError("a report declares nothing")

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = begin, end
    parser.EntityDeclHandler = parser.StartDoctypeDeclHandler = refuse
    parser.Parse(report, True)
