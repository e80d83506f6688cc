"""Read the reports of a check from a pipe for this check only.

The pipe has an unguessable name and is visible in the box. pytest writes into it (via PYTEST_ADDOPTS). Report files of
other runners are copied into it in the box. All programs in the box can write to it, also those that a worker wrote, so
its content is hostile: it is capped and parsed with care. A received report distinguishes a complete run from one that
exited early with code 0.
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
"""Precedes each file that is copied into the pipe."""
COPY = (
    'rm -f -- $2 2>/dev/null; "$0" -c "$1"; code=$?; '
    'for file in $2; do if test -f "$file"; then printf "\\0"; cat -- "$file"; fi; done >"$3"; exit $code'
)
"""Run the command `$1`, copy its result files `$2` into the pipe `$3`, and exit with its code."""


@dataclass(slots=True)
class ReportChannel:
    """Receives the reports of one check: none, one or several in sequence."""

    path: Path
    fd: int
    content: bytearray = field(default_factory=bytearray)
    too_long: bool = False

    async def listen(self) -> None:
        while True:
            await wait_readable(self.fd)
            self.drain()

    def drain(self) -> None:
        """Read all written data. Bytes beyond the limit are read and dropped, so that writers do not block."""
        with suppress(BlockingIOError):
            while chunk := os.read(self.fd, CHUNK):
                self.too_long = self.too_long or len(self.content) + len(chunk) > CAP
                if not self.too_long:
                    self.content += chunk

    def reports(self) -> Sequence[bytes]:
        """Return each report that pytest wrote, or none if they are too long."""
        return [START + part for part in self._parts(START)]

    def files(self) -> Sequence[bytes]:
        """Return each copied file, or none if they are too long."""
        return self._parts(FILE)

    def _parts(self, start: bytes) -> Sequence[bytes]:
        return [] if self.too_long else bytes(self.content).split(start)[1:]


@asynccontextmanager
async def report_channel(folder: Path) -> AsyncIterator[ReportChannel]:
    """Open a channel in this folder, read while the block runs, and to its end after it."""
    path = folder / f"report-{token_hex(8)}"
    with os_errors("can't create a pipe for the report of a check"):
        make_folder(folder)
        os.mkfifo(path, stat.S_IRUSR | stat.S_IWUSR)
        fd = os.open(
            path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC
        )  # open for writing, too, so that it never ends early
    channel = ReportChannel(path, fd)
    try:
        async with background(channel.listen):
            yield channel
        channel.drain()
    finally:
        os.close(fd)
        path.unlink(missing_ok=True)


# ---- junit -----------------------------------------------------------------------------------------------------------
# The tests in JUnit reports, which nearly every runner can write. Their content is hostile.


NOT_RUN, NOT_PASSED, FAILED = {"skipped", "error"}, {"skipped", "error", "failure"}, {"error", "failure"}


def junit_tests(reports: Sequence[bytes]) -> RanTests | None:
    """Return the tests in all reports, or None if there is no report or one is invalid."""
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
        raise ValueError("a report must not declare entities")

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = begin, end
    parser.EntityDeclHandler = parser.StartDoctypeDeclHandler = refuse
    parser.Parse(report, True)


# ---- sarif -----------------------------------------------------------------------------------------------------------
# The findings in SARIF 2.1 reports, which most analyzers can write. Their content is hostile.
#
# A finding is identified by its rule, its file and its message, not by its line, because lines move. A finding that the
# code itself suppresses counts, too, because a worker could write the suppression.


MOST, LONGEST = 100_000, 300
"""Limits: findings, and characters of each."""


def sarif_findings(reports: Sequence[bytes]) -> RanTests | None:
    """Return the findings in all reports, or None if there is no report, one is invalid, or there are too many."""
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
