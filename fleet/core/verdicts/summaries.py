"""How many tests ran, as the summary of a runner in a check's output says.

A program that ends a test process early leaves no summary, or one of fewer tests. A summary can be forged by what runs
in that process, but not without text that looks like one (`fleet/core/verdicts/oddities.py`).
"""

import re
from collections.abc import Callable, Iterable

from fleet.core.state.kinds.fact_parts import RanTests

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
Counts = tuple[int, int]
"""Tests that passed, and tests that failed."""


def summary(output: str) -> RanTests | None:
    """The number of tests in all summaries of all runners in this output; None without a summary."""
    text = ESCAPES.sub("", output).replace("\r\n", "\n")
    counts = [pair for runner in RUNNERS for pair in runner(text)]
    if not counts:
        return None
    passed, failed = sum(pair[0] for pair in counts), sum(pair[1] for pair in counts)
    return RanTests(count=passed + failed, failed=failed)


def has_no_tests(output: str) -> bool:
    """Whether a runner says that it found no test at all."""
    return NOTHING.search(ESCAPES.sub("", output)) is not None


NOTHING = re.compile(
    r"^(?:NO TESTS RAN\b.*|.*\bno tests ran\b.*|Ran 0 tests in .*|No tests found.*|No test files found.*"
    r"|.*\bno test files\b.*|ERROR: file or directory not found: .*|# tests 0|\u2139 tests 0)$",
    re.MULTILINE | re.IGNORECASE,
)


def _labelled(text: str) -> Callable[[str], int]:
    """The number before or after a word: `2 passed`, `failures=1`."""

    def number(word: str) -> int:
        found = re.search(rf"(\d+) {word}\b|\b{word}=(\d+)", text)
        return int(found[1] or found[2]) if found else 0

    return number


def _unittest(text: str) -> Iterable[Counts]:
    pattern = r"^Ran (\d+) tests? in [^\n]*\n\n?(?:OK|FAILED|NO TESTS RAN)(?: \(([^\n]*)\))?$"
    for match in re.finditer(pattern, text, re.MULTILINE):
        number = _labelled(match[2] or "")
        failed = number("failures") + number("errors") + number("unexpected successes")
        yield max(0, int(match[1]) - failed - number("skipped")), failed


def _node(text: str) -> Iterable[Counts]:
    lines = re.finditer(r"^(?:#|\u2139) pass (\d+)\n(?:#|\u2139) fail (\d+)$", text, re.MULTILINE)
    return [(int(match[1]), int(match[2])) for match in lines]


def _listed(text: str) -> Iterable[Counts]:
    """Jest, vitest, pytest: `Tests: 1 failed, 2 passed, 3 total`, `Tests  2 passed (2)`, `== 2 passed in 1s ==`."""
    pattern = r"^(?: *Tests:? +|=+ )([^\n]*\b(?:passed|failed|skipped|todo)\b[^\n]*)$"
    for match in re.finditer(pattern, text, re.MULTILINE):
        number = _labelled(match[1])
        yield number("passed"), number("failed")


def _go(text: str) -> Iterable[Counts]:
    """Packages; single tests where `-v` lists also those that pass."""
    is_verbose = re.search(r"^=== RUN ", text, re.MULTILINE) is not None
    pattern = r"^ *--- (PASS|FAIL): " if is_verbose else r"^(ok|FAIL) *\t\S+"
    return [(1, 0) if each in {"PASS", "ok"} else (0, 1) for each in re.findall(pattern, text, re.MULTILINE)]


def _cargo(text: str) -> Iterable[Counts]:
    lines = re.finditer(r"^test result: \w+\. (\d+) passed; (\d+) failed;", text, re.MULTILINE)
    return [(int(match[1]), int(match[2])) for match in lines]


def _others(text: str) -> Iterable[Counts]:
    """Mocha; JUnit with Maven; RSpec; CTest; PHPUnit."""
    for match in re.finditer(r"^ +(\d+) passing\b[^\n]*(?:\n +\d+ pending)?(?:\n +(\d+) failing)?", text, re.MULTILINE):
        yield int(match[1]), int(match[2] or 0)
    for match in re.finditer(r"^(?:\[\w+\] )?Tests run: (\d+), Failures: (\d+), Errors: (\d+)", text, re.MULTILINE):
        failed = int(match[2]) + int(match[3])
        yield int(match[1]) - failed, failed
    for match in re.finditer(r"^(\d+) examples?, (\d+) failures?", text, re.MULTILINE):
        yield int(match[1]) - int(match[2]), int(match[2])
    for match in re.finditer(r"^\d+% tests passed, (\d+) tests failed out of (\d+)$", text, re.MULTILINE):
        yield int(match[2]) - int(match[1]), int(match[1])
    for match in re.finditer(r"^OK \((\d+) tests?, \d+ assertions?\)$", text, re.MULTILINE):
        yield int(match[1]), 0


RUNNERS = (_unittest, _node, _listed, _go, _cargo, _others)
