"""Looking at a change before it counts: tests that were not its to change are refused, oddities are shown to a person.

What a worker writes runs in the same process as the tests that judge it, so no list of forbidden moves is complete.
What looks like one is no proof of bad faith either: it lands if its checks pass, and a warning names it.
"""

import re
from collections.abc import Iterator, Sequence

from fleet.core import facts as f
from fleet.core.evidence import borrowed_tests, is_test
from fleet.core.plan import Criterion, Subtask
from fleet.core.state import Attempt
from fleet.ports import Worktrees

ODD = {
    "ends the process that tests it": re.compile(r"\bos\._exit\s*\(|\bos\.kill\s*\(\s*os\.getpid|\batexit\.register"),
    "is equal to everything": re.compile(r"def __(?:eq|ne|bool|contains)__\b.*(?:return (?:True|1)\b)"),
    "reaches into the test runner": re.compile(
        r"\b_?pytest\b|\bunittest\.(?:TestCase|case)\b|PYTEST_|/proc/(?:self|1)/"
    ),
}
"""What added lines outside of tests may do to the tests that run them."""


async def changed_tests(
    worktrees: Worktrees, spec: Subtask, attempt: Attempt, criteria: Sequence[Criterion]
) -> f.Failure | None:
    """A worker may add tests, but those that stood on its base and that judge it are the plan's to give."""
    base = worktrees.at(attempt.base)
    changed = borrowed_tests(attempt.paths, criteria, spec.touches)
    stood = [path for path in changed if path in await base.list_files(path)]
    if not stood:
        return None
    why = "these judge it: only a subtask whose `touches` names them may change tests that its own checks run"
    return f.Failure(
        kind="bounds", summary="changes the tests that its own checks run", evidence="\n".join((*stood, why))
    )


async def for_review(worktrees: Worktrees, spec: Subtask, attempt: Attempt, at: float) -> tuple[f.Fact, ...]:
    """Warnings about what a person should look at before the result is taken."""
    if attempt.commit is None:
        return ()
    found = oddities(await worktrees.diff(attempt.base, attempt.commit))
    return tuple(f.WarningNoted(at=at, text=f"for review: {spec.id}: {path} {what}") for path, what in found)


def oddities(patch: str) -> tuple[tuple[str, str], ...]:
    """Paths whose added lines do something odd, and what, each once."""
    found = {(path, what): None for path, text in _added(patch) for what, odd in ODD.items() if odd.search(text)}
    return tuple(found)


def _added(patch: str) -> Iterator[tuple[str, str]]:
    """What is added to each file that is no test, a function's head and body on one line."""
    for part in re.split(r"^diff --git ", patch, flags=re.MULTILINE)[1:]:
        named = re.search(r"^\+\+\+ b/(.*)$", part, re.MULTILINE)
        if named is None or is_test(named[1]):
            continue
        lines = [line[1:] for line in part[named.end() :].splitlines() if line.startswith("+")]
        for line, after in zip(lines, [*lines[1:], ""], strict=True):
            yield named[1], f"{line} {after.strip()}"
