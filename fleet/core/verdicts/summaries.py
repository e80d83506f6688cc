"""Counts tests from the summary of a runner in a check's output.

A program that ends a test process early leaves no summary, or a lower count. Code in that process can forge a summary,
but not without text that looks like one (`fleet/core/verdicts/suspicious_changes.py`).
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence

from fleet.core.base.paths import is_test, matches
from fleet.core.facts.facts import RanTests
from fleet.core.plans.plan import Criterion

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
Counts = tuple[int, int]
"""Tests that passed, and tests that failed."""


def summary(output: str) -> RanTests | None:
    """Return the number of tests in all summaries of the output, or None without a summary."""
    text = ESCAPES.sub("", output).replace("\r\n", "\n")
    counts = [pair for runner in RUNNERS for pair in runner(text)]
    if not counts:
        return None
    passed, failed = sum(pair[0] for pair in counts), sum(pair[1] for pair in counts)
    return RanTests(count=passed + failed, failed=failed)


def has_no_tests(output: str) -> bool:
    """Return whether a runner reports that it found no tests."""
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


def _list(text: str) -> Iterable[Counts]:
    """Jest, vitest, pytest: `Tests: 1 failed, 2 passed, 3 total`, `Tests  2 passed (2)`, `== 2 passed in 1s ==`."""
    pattern = r"^(?: *Tests:? +|=+ )([^\n]*\b(?:passed|failed|skipped|todo)\b[^\n]*)$"
    for match in re.finditer(pattern, text, re.MULTILINE):
        number = _labelled(match[1])
        yield number("passed"), number("failed")


def _go(text: str) -> Iterable[Counts]:
    """Return counts of packages, or of single tests if `-v` lists the passing ones."""
    is_verbose = re.search(r"^=== RUN ", text, re.MULTILINE) is not None
    pattern = r"^ *--- (PASS|FAIL): " if is_verbose else r"^(ok|FAIL) *\t\S+"
    return [(1, 0) if each in {"PASS", "ok"} else (0, 1) for each in re.findall(pattern, text, re.MULTILINE)]


def _cargo(text: str) -> Iterable[Counts]:
    lines = re.finditer(r"^test result: \w+\. (\d+) passed; (\d+) failed;", text, re.MULTILINE)
    return [(int(match[1]), int(match[2])) for match in lines]


def _others(text: str) -> Iterable[Counts]:
    """Return counts from Mocha, JUnit with Maven, RSpec, CTest and PHPUnit."""
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


RUNNERS = (_unittest, _node, _list, _go, _cargo, _others)


# ---- tests -----------------------------------------------------------------------------------------------------------
# The tests that a verdict rests on: which ones a subtask may not change, and which ones a check must have run.
#
# A subtask may not change a test of the base that its own checks name, unless its `touches` lists it. If it changed
# other tests, the checks run twice: on the tree that lands, and on that tree with the base's tests
# (docs/decisions/0022, 0036). If a runner reports its tests, a success counts only if the tests of the base ran again
# (docs/decisions/0038).


TESTS_INSIDE = (".rs",)  # files that contain tests
PATH_WORD = re.compile(r"[\w./@+-]+")
_WRAPPERS = r"(?:\w+=\S*\s+|(?:env|exec|time|timeout\s+\S+|(?:uv|poetry|pdm|hatch|pipenv)\s+run)\s+)*"
_PYTEST = re.compile(
    rf"(?:^|[;&|(!]|\n)\s*{_WRAPPERS}(?:\S*python[\d.]*\s+(?:-\w\s+)*-m\s+)?(?:pytest|py\.test)(?=\s|$)"
)
_PREVENTS_REPORT = re.compile(r"PYTEST_ADDOPTS|junit|--version|--help|\s-h\b|--fixtures|--markers")


def borrowed_tests(paths: Iterable[str], touches: Sequence[str]) -> tuple[str, ...]:
    """The changed paths that are tests and not listed in `touches`."""
    return tuple(path for path in paths if is_test(path) and not matches(path, touches))


def named_tests(criteria: Sequence[Criterion], tests: Iterable[str]) -> tuple[str, ...]:
    """The tests that a command of these criteria names."""
    words = {word for criterion in criteria for word in PATH_WORD.findall(criterion.run or "")}
    return tuple(path for path in tests if is_named(path, words))


def is_named(path: str, words: Iterable[str]) -> bool:
    """Whether a word names a file, a folder above it, its module, or something in that module."""
    module = path.rsplit(".", 1)[0].replace("/", ".")
    for word in words:
        name = word.removeprefix("./").rstrip("/")
        if path == name or path.startswith(f"{name}/") or module == name or name.startswith(f"{module}."):
            return True
    return False


def starts_pytest(command: str) -> bool:
    """Whether a command certainly starts pytest in a way that lets it report."""
    return _PYTEST.search(command) is not None and _PREVENTS_REPORT.search(command) is None


def missing_tests(
    before: RanTests, now: RanTests, *, changed: Collection[str], touches: Iterable[str]
) -> tuple[str, ...]:
    """Return the tests that ran before and do not pass now, except those in files that the subtask may change.

    If a runner prints only a number, any changed test may explain a lower count.
    """
    allowed = tuple(touches)
    fewer = (before.count or 0) > now.number_passed
    inside = now.number_passed > 0 and any(path.endswith(TESTS_INSIDE) for path in changed)
    if fewer and not inside and not any(map(is_test, changed)):
        return (f"{before.count} tests ran before, {now.number_passed} pass now",)
    lost = sorted(before.ran - now.passed)
    return tuple(name for name in lost if not _may_differ(name.partition("::")[0], changed, allowed))


def _may_differ(file: str, changed: Collection[str], touches: tuple[str, ...]) -> bool:
    """Reports name files relative to where the runner started, which may be a folder of the repository.

    Where they name none, any changed test may be the one.
    """
    if not file:
        return any(map(is_test, changed))
    return matches(file, touches) or any(path == file or path.endswith(f"/{file}") for path in changed)
