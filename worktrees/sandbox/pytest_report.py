"""What pytest says of each test that a check ran, on a channel that is made for that one check.

A pipe with a name nobody could know before, shown to the box and named in PYTEST_ADDOPTS. Programs in the box write
to it, also those that a worker wrote, so what comes is hostile: it is capped, and parsed without entities. That it
comes at all tells a run that was finished from one that was broken off with success.
"""

import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from xml.parsers import expat

from anyio import create_task_group, wait_readable

from fleet.core.facts import Failure, RanTests
from fleet.ports import Broken
from worktrees.wipe import make_folder

CAP = 32 * 1024 * 1024
CHUNK = 1024 * 1024
START = b"<?xml"
HIDDEN, OTHERWISE = {"skipped", "error"}, {"skipped", "error", "failure"}


@dataclass(slots=True)
class Channel:
    """Where the reports of one check arrive; there may be several, one after another, or none."""

    path: Path
    fd: int
    said: bytearray = field(default_factory=bytearray)
    too_long: bool = False

    async def listen(self) -> None:
        while True:
            await wait_readable(self.fd)
            self.drain()

    def drain(self) -> None:
        """All there is. What is beyond the limit is read, too, so that nobody has to wait."""
        with suppress(BlockingIOError):
            while chunk := os.read(self.fd, CHUNK):
                self.too_long = self.too_long or len(self.said) + len(chunk) > CAP
                if not self.too_long:
                    self.said += chunk

    def close(self) -> None:
        os.close(self.fd)
        self.path.unlink(missing_ok=True)

    def take(self) -> RanTests | None:
        """What was said since the last time. Nobody speaks any more, and the next finds it open."""
        self.drain()
        os.fchmod(self.fd, stat.S_IRUSR | stat.S_IWUSR)
        heard = self.heard()
        self.said, self.too_long = bytearray(), False
        return heard

    def heard(self) -> RanTests | None:
        """What was said; None where that was nothing, or nothing that can be understood."""
        reports = [START + part for part in bytes(self.said).split(START)[1:]]
        if not reports or self.too_long:
            return None
        ran, passed = set[str](), set[str]()
        try:
            for report in reports:
                _read(report, ran, passed)
        except (expat.ExpatError, ValueError):
            return None
        return RanTests(ran=frozenset(ran), passed=frozenset(passed))


def make_channel(folder: Path) -> Channel:
    """One that nobody listens to yet. Raises `Broken`."""
    path = folder / f"report-{token_hex(8)}"
    try:
        make_folder(folder)
        os.mkfifo(path, stat.S_IRUSR | stat.S_IWUSR)
        fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)  # for writing, too: so it never ends meanwhile
    except OSError as error:
        why = f"a pipe for the report of a check can't be made: {error}"
        raise Broken(Failure(kind="infrastructure", summary=why)) from error
    return Channel(path, fd)


@asynccontextmanager
async def channel(folder: Path) -> AsyncIterator[Channel]:
    """A channel in this folder, listened to as long as the block lasts, and read to its end behind it."""
    made = make_channel(folder)
    failed: Broken | None = None
    try:
        async with create_task_group() as beside:
            beside.start_soon(made.listen)
            try:
                yield made
            except Broken as broken:  # raised in here it would come out as a group
                failed = broken
            beside.cancel_scope.cancel()
        if failed is not None:
            raise failed
        made.drain()
    finally:
        made.close()


def _read(report: bytes, ran: set[str], passed: set[str]) -> None:
    """Add the tests of one report: file, class and name, all the parameters of a function in one."""
    name, ends = "", set[str]()

    def begin(tag: str, about: dict[str, str]) -> None:
        nonlocal name
        if tag == "testcase":
            ends.clear()
            place = "::".join((about.get("file", ""), about.get("classname", ""), about.get("name", "")))
            name = place.partition("[")[0]
        ends.add(tag)

    def end(tag: str) -> None:
        if tag == "testcase":
            if not ends & HIDDEN:
                ran.add(name)
            if not ends & OTHERWISE:
                passed.add(name)

    def refuse(*_: object) -> None:
        raise ValueError("a report declares nothing")

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = begin, end
    parser.EntityDeclHandler = parser.StartDoctypeDeclHandler = refuse
    parser.Parse(report, True)
