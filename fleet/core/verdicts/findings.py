"""What an analyser finds: a change may bring nothing that the run's base does not have.

The exit code of an analyser says only that it found something, so it counts for nothing; that results are there does.
"""

from fleet.core.plans.plan import Criterion

NO_RESULTS = "[fleet] it left no results that can be read where they should be: {tests}"
NO_FINDINGS_BEFORE = "[fleet] on the run's base it leaves no results that can be read: nothing to compare with"
MOST_SHOWN = 20


def is_analysis(criterion: Criterion) -> bool:
    """Whether the results of a check are findings instead of tests."""
    return criterion.tests is not None and criterion.tests.startswith("sarif:")


def findings_problem(criterion: Criterion, before: frozenset[str] | None, now: frozenset[str] | None) -> str | None:
    """Why the results of an analyser are no success; None if there is nothing new."""
    if now is None:
        return NO_RESULTS.format(tests=criterion.tests)
    if before is None:
        return NO_FINDINGS_BEFORE
    new = sorted(now - before)
    if not new:
        return None
    more = [f"and {len(new) - MOST_SHOWN} more"] if len(new) > MOST_SHOWN else []
    return "\n".join((f"[fleet] {len(new)} new, which the run's base does not have:", *new[:MOST_SHOWN], *more))
