"""Which tests a check has to have run: those that it ran on the base, unless their files are what was to be changed.

Where a runner can say which tests it ran, an exit code of zero is not believed by itself (docs/decisions/0038).
"""

import re
from collections.abc import Collection, Iterable

from fleet.core.facts import RanTests
from fleet.core.paths import matches

_WRAPPERS = r"(?:\w+=\S*\s+|(?:env|exec|time|timeout\s+\S+|(?:uv|poetry|pdm|hatch|pipenv)\s+run)\s+)*"
_STARTS = re.compile(
    rf"(?:^|[;&|(!]|\n)\s*{_WRAPPERS}(?:\S*python[\d.]*\s+(?:-\w\s+)*-m\s+)?(?:pytest|py\.test)(?=\s|$)"
)
_SAYS_NOTHING = re.compile(r"PYTEST_ADDOPTS|junit|--version|--help|\s-h\b|--fixtures|--markers")


def starts_pytest(command: str) -> bool:
    """Whether a command is sure to start pytest in a way that lets it report."""
    return _STARTS.search(command) is not None and _SAYS_NOTHING.search(command) is None


def missing(before: RanTests, now: RanTests, *, changed: Collection[str], touches: Iterable[str]) -> tuple[str, ...]:
    """The tests that ran before and do not pass now, but for those whose file was changed or may be."""
    handed = tuple(touches)
    lost = sorted(before.ran - now.passed)
    return tuple(name for name in lost if not _excused(name.partition("::")[0], changed, handed))


def _excused(file: str, changed: Collection[str], touches: tuple[str, ...]) -> bool:
    """A report names files from where pytest began, which may be a folder of the repository."""
    return matches(file, touches) or any(path == file or path.endswith(f"/{file}") for path in changed)
