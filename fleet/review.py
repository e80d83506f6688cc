"""Looking at a change before it counts: tests that were not its to change are refused, oddities are shown to a person.

What a worker writes runs in the same process as the tests that judge it, so no list of forbidden moves is complete.
What looks like one is no proof of bad faith either: it lands if its checks pass, and a warning names it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from fleet.checking import Checks
from fleet.core import facts as f
from fleet.core.evidence import borrowed_tests, is_test, named_by
from fleet.core.failures import evidence
from fleet.core.plan import Criterion, Subtask
from fleet.core.state import Attempt
from fleet.ports import Worktrees

LISTED = 50  # tests named in a failure; the rest is counted
ODD = {
    "ends the process that tests it": re.compile(r"\bos\._exit\s*\(|\bos\.kill\s*\(\s*os\.getpid|\batexit\.register"),
    "is equal to everything": re.compile(r"def __(?:eq|ne|bool|contains)__\b.*(?:return (?:True|1)\b)"),
    "reaches into the test runner": re.compile(
        r"\b_?pytest\b|\bunittest\.(?:TestCase|case)\b|PYTEST_|/proc/(?:self|1)/"
    ),
}
"""What added lines outside of tests may do to the tests that run them."""


async def changed_tests(worktrees: Worktrees, spec: Subtask, attempt: Attempt) -> tuple[str, ...]:
    """The tests that stood on the base and that it changed or took away, without being given them by the plan."""
    borrowed = borrowed_tests(attempt.paths, spec.touches)
    there = frozenset(await worktrees.at(attempt.base).list_files()) if borrowed else frozenset()
    return tuple(path for path in borrowed if path in there)


def refused(changed: Sequence[str], criteria: Sequence[Criterion]) -> f.Failure | None:
    """A worker may add tests, but those that stood on its base and that its criteria name are the plan's to give."""
    named = named_by(criteria, changed)
    if not named:
        return None
    why = "these judge it: only a subtask whose `touches` names them may change tests that its own checks run"
    return f.Failure(
        kind="bounds", summary="changes the tests that its own checks run", evidence="\n".join((*named, why))
    )


async def passes_by_less(
    checks: Checks, spec: Subtask, attempt: Attempt, criteria: Sequence[Criterion]
) -> f.Failure | None:
    """Whether its checks pass because tests that ran on its base did not run, or were skipped."""
    if attempt.commit is None:
        return None
    lost = await checks.lost(attempt.commit, attempt.base, criteria, changed=attempt.paths, touches=spec.touches)
    return _without(lost) if lost else None


def _without(lost: Mapping[str, Sequence[str]]) -> f.Failure:
    names = list(dict.fromkeys(name for tests in lost.values() for name in tests))
    more = [f"... and {len(names) - LISTED} more"] if len(names) > LISTED else []
    why = "These ran on its base, and do not pass now although the exit code is 0: they were skipped, or never ran."
    return f.Failure(
        kind="check",
        summary=f"passes without tests that ran on its base: {', '.join(lost)}",
        evidence="\n".join((why, *names[:LISTED], *more, "If that is meant, name their files in `touches`.")),
    )


async def judged_by_the_base(
    checks: Checks, spec: Subtask, attempt: Attempt, criteria: Sequence[Criterion], changed: Sequence[str]
) -> f.Failure | None:
    """Whether it passes with the tests of its base, too, asked where a command finds its tests by itself.

    The gate is asked with the criteria: it runs what stood. What was red on the base already is held against nobody.
    """
    if not changed or attempt.commit is None:
        return None
    commit = await checks.worktrees.restored(attempt.commit, attempt.base, changed)
    before = {check.command for check in checks.engine.state.red_base}
    asked = (*criteria, *checks.rules.criteria)
    runs = await checks.on(commit, asked)
    red = tuple(run for run in runs if not run.fine and run.command not in before)
    if not red:
        others = [path for path in attempt.paths if path not in changed]
        lost = await checks.lost(commit, attempt.base, asked, changed=others, touches=spec.touches)
        return _without(lost) if lost else None
    files = ", ".join(changed)
    why = f"The tests as they stood on its base were put back: {files}. To change them, name them in `touches`."
    return f.Failure(
        kind="bounds",
        summary=f"passes only with the tests that it changed: {', '.join(run.criterion for run in red)}",
        evidence=f"{why}\n\n{evidence(red)}",
    )


async def for_review(
    worktrees: Worktrees, spec: Subtask, attempt: Attempt, changed: Sequence[str], at: float
) -> tuple[f.Fact, ...]:
    """Warnings about what a person should look at before the result is taken."""
    if attempt.commit is None:
        return ()
    stood = ((path, "is a test that stood before, and is not the same any more") for path in changed)
    found = (*stood, *oddities(await worktrees.diff(attempt.base, attempt.commit)))
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
