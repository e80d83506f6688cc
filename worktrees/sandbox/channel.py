"""What the programs of a check report, from a pipe made for that one check.

The pipe has a name that can't be guessed and is shown to the box. pytest writes into it by itself (PYTEST_ADDOPTS names
it); what other runners leave in files is copied into it in the box. Programs in the box can write to it, also those
that a worker wrote, so its content is hostile: it is capped here, and parsed with care. That a report arrives at all
distinguishes a run that finished from one that was broken off with success.
"""

import os
import stat
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Any
from xml.parsers import expat

from anyio import wait_readable

from fleet.core.base.output import parse_json
from fleet.core.facts.facts import RanTests
from worktrees.base.fs import make_folder
from worktrees.base.process import os_errors
from worktrees.base.turns import background

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


# ---- junit -----------------------------------------------------------------------------------------------------------
# The tests in reports of JUnit's form, which nearly every runner can write. Their content is hostile.


NOT_RUN, NOT_PASSED, FAILED = {"skipped", "error"}, {"skipped", "error", "failure"}, {"error", "failure"}


def junit_tests(reports: Sequence[bytes]) -> RanTests | None:
    """The tests in all reports; None without a report, or where one can't be parsed."""
    if not reports:
        return None
    ran, passed, failed = set[str](), set[str](), set[str]()
    try:
        for report in reports:
            _parse(report, ran, passed, failed)
    except (expat.ExpatError, ValueError):
        return None
    return RanTests(ran=frozenset(ran), passed=frozenset(passed), failed=len(failed))


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


# ---- sarif -----------------------------------------------------------------------------------------------------------
# The findings in reports of the form SARIF 2.1, which most analysers can write. Their content is hostile.
#
# A finding is known by its rule, its file and what it says, not by its line: lines move. What the code itself
# suppresses is a finding, too, because a worker could write the suppression.


MOST, LONGEST = 100_000, 300
"""Findings that are compared, and characters of each."""


def sarif_findings(reports: Sequence[bytes]) -> RanTests | None:
    """The findings in all reports; None without a report, where one can't be read, or where there are too many."""
    seen: Counter[str] = Counter()
    try:
        for report in reports:
            for finding in _findings(parse_json(report)):
                seen[finding] += 1
                if seen.total() > MOST:
                    return None
    except (ValueError, TypeError, AttributeError, KeyError, IndexError):
        return None
    named = (f"{finding} ({number})" if number else finding for finding, n in seen.items() for number in range(n))
    return RanTests(findings=frozenset(named)) if reports else None


def _findings(document: Any) -> Iterator[str]:
    for run in document["runs"]:
        for result in run.get("results") or ():
            if result.get("kind", "fail") == "fail" and result.get("baselineState") != "absent":
                yield " ".join(f"{_file(result)}: {_rule(result)}: {_text(result)}".split())[:LONGEST]


def _file(result: Any) -> str:
    locations: Any = result.get("locations")
    place = locations[0]["physicalLocation"]["artifactLocation"] if locations else {}
    return str(place.get("uri", ""))


def _rule(result: Any) -> str:
    return str(result.get("ruleId") or result.get("rule", {}).get("id", ""))


def _text(result: Any) -> str:
    message = result["message"]
    return str(message.get("text") or message.get("id", ""))
