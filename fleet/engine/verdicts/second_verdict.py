"""The second verdict on a change: with the judges of its base, and without the tests that it added.

Built on the candidate and never to land: the tree that was tested is still the tree that is published
(docs/decisions/0036).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fleet.core.base.ids import Sha
from fleet.core.plans.plan import Criterion
from fleet.core.state import facts as f
from fleet.core.state.failures import evidence
from fleet.core.verdicts.commands import Reading
from fleet.core.verdicts.judges import Influence, naming
from fleet.core.verdicts.summaries import has_no_tests
from fleet.core.verdicts.tests import is_test
from fleet.engine.verdicts.checks import Checks

PYTEST_FOUND_NONE = frozenset({4, 5})  # its exit codes for "no such file" and "no tests collected"


@dataclass(frozen=True, slots=True)
class SecondVerdict:
    """Asks the checks of one change again."""

    checks: Checks
    commit: Sha
    base: Sha
    files: frozenset[str]
    """The files of its base."""
    influence: Influence
    readings: Mapping[str, Reading]
    """What each command runs and reads."""

    async def red(self, criteria: Sequence[Criterion]) -> tuple[tuple[f.CheckRun, ...], tuple[str, ...]]:
        """The checks that pass only with what the change brought along, and the notes for a person.

        The gate runs with the criteria. A check that was red on the base of the run counts against no subtask.
        """
        red, notes = list[f.CheckRun](), list[str]()
        for paths, asked in self.rounds(criteria):
            commit = await self.checks.worktrees.restored(self.commit, self.base, paths)
            before = {check.command for check in self.checks.engine.state.red_base}
            for run in await self.checks.on(commit, asked):
                if run.fine or run.command in before:
                    continue
                if self.influence.tests and await self._found_no_test(commit, run):
                    notes.append(f"{run.criterion} has no test without those that the change added")
                else:
                    red.append(run)
        return tuple(red), tuple(dict.fromkeys(notes))

    def rounds(self, criteria: Sequence[Criterion]) -> Iterator[tuple[tuple[str, ...], tuple[Criterion, ...]]]:
        """What is put back or taken away, and the checks that then run.

        Of files that checks run or read, each check gets its own put back. A criterion that names a new test asks for
        it: it is not asked without.
        """
        asks_for_new = naming(criteria, self.influence.tests, self.files)
        asked = dict[tuple[str, ...], list[Criterion]]()
        for criterion in (*criteria, *self.checks.rules.criteria):
            read = self.readings.get(criterion.run or "", Reading())
            judges = tuple(path for path in self.influence.judges if is_test(path) or read.is_judge(path))
            tests = () if criterion in asks_for_new else self.influence.tests
            asked.setdefault((*judges, *tests), []).append(criterion)
        yield from ((paths, tuple(group)) for paths, group in asked.items() if paths)

    async def _found_no_test(self, commit: Sha, run: f.CheckRun) -> bool:
        """Whether a red check says nothing about the work: no test was left, or none of those that ran failed."""
        ran = await self.checks.ran_tests(commit, run.command)
        if ran is not None and not run.timed_out:
            return ran.failed == 0
        return has_no_tests(run.output) or (run.exit_code in PYTEST_FOUND_NONE and self.checks.reports(run.command))


def refusal(red: Sequence[f.CheckRun], influence: Influence) -> f.Failure:
    """The failure of a change that passes only with what it brought along."""
    names = ", ".join(run.criterion for run in red)
    lines = list[str]()
    if influence.judges:
        lines.append(f"These judges of its base were put back: {', '.join(influence.judges)}. ")
    if influence.tests:
        lines.append(f"These new tests were left out: {', '.join(influence.tests)}. ")
    if influence.judges:
        what = "the tests that it changed" if not influence.tests else "the tests that it changed or added"
        lines.append("To change them, name them in `touches`.")
    else:
        what = "the tests that it added"
        lines.append("If new tests are meant to decide, name them in the command of a criterion.")
    return f.Failure(
        kind="bounds",
        summary=f"passes only with {what}: {names}",
        evidence=f"{''.join(lines)}\n\n{evidence(tuple(red))}",
    )
