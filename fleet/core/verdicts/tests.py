"""The tests that a verdict rests on: which ones a subtask may not change, and which ones a check must have run.

A subtask may not change a test of the base that its own checks name, unless its `touches` lists it. If it changed other
tests, the checks run twice: on the tree that lands, and on that tree with the base's tests (docs/decisions/0022, 0036).
If a runner reports its tests, a success counts only if the tests of the base ran again (docs/decisions/0038).
"""

import re
from collections.abc import Collection, Iterable, Sequence

from fleet.core.base.paths import matches
from fleet.core.plans.plan import Criterion
from fleet.core.state.facts import RanTests

FOLDERS = {"test", "tests", "spec", "specs", "__tests__", "testing"}
DATA_FOLDERS = {"testdata", "test_data", "test-data", "__fixtures__", "__snapshots__"}
_NAME = re.compile(r"(?:test_.*|tests|.*(?:_test|_spec|\.test|\.spec))\.[A-Za-z0-9]+|.*Tests?\.[A-Za-z0-9]+|.*\.snap")
TESTS_INSIDE = (".rs",)  # files that hold tests of their own
PATH_WORD = re.compile(r"[\w./@+-]+")
_WRAPPERS = r"(?:\w+=\S*\s+|(?:env|exec|time|timeout\s+\S+|(?:uv|poetry|pdm|hatch|pipenv)\s+run)\s+)*"
_PYTEST = re.compile(
    rf"(?:^|[;&|(!]|\n)\s*{_WRAPPERS}(?:\S*python[\d.]*\s+(?:-\w\s+)*-m\s+)?(?:pytest|py\.test)(?=\s|$)"
)
_PREVENTS_REPORT = re.compile(r"PYTEST_ADDOPTS|junit|--version|--help|\s-h\b|--fixtures|--markers")


def is_test(path: str) -> bool:
    """Whether a file is a test by its name or folder, as the usual runners find them."""
    *folders, name = path.split("/")
    return bool((FOLDERS | DATA_FOLDERS).intersection(folders)) or _NAME.fullmatch(name) is not None


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
    """The tests that ran before and do not pass now, except those whose file was changed or may be.

    Where a runner prints only their number, any changed test may be the reason that there are fewer.
    """
    allowed = tuple(touches)
    fewer = (before.count or 0) > now.number_passed
    inside = now.number_passed > 0 and any(path.endswith(TESTS_INSIDE) for path in changed)
    if fewer and not inside and not any(map(is_test, changed)):
        return (f"{before.count} tests ran, {now.number_passed} pass now",)
    lost = sorted(before.ran - now.passed)
    return tuple(name for name in lost if not _may_differ(name.partition("::")[0], changed, allowed))


def _may_differ(file: str, changed: Collection[str], touches: tuple[str, ...]) -> bool:
    """Reports name files relative to where the runner started, which may be a folder of the repository.

    Where they name none, any changed test may be the one.
    """
    if not file:
        return any(map(is_test, changed))
    return matches(file, touches) or any(path == file or path.endswith(f"/{file}") for path in changed)
