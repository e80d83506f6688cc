"""Reviews a change before it counts: rejects changes to the files that judge it, and reports suspicious code.

A worker's code runs in the same process as the tests, so a list of forbidden code can't be complete. Suspicious code is
not a proof of bad faith either. It lands if its checks pass, and a warning names it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fleet.core.base.ids import Sha
from fleet.core.base.paths import is_test
from fleet.core.facts import facts as f
from fleet.core.facts.failures import check_failure, evidence
from fleet.core.plans.plan import Criterion, Subtask
from fleet.core.state.subtasks import Attempt
from fleet.core.verdicts.commands import CommandReading, reading
from fleet.core.verdicts.sources import reading_of
from fleet.core.verdicts.summaries import has_no_tests, named_tests
from fleet.core.verdicts.suspicious_changes import oddities
from fleet.core.verdicts.verdict_files import VerdictInfluence, influence, naming
from fleet.engine.checks import Checks
from fleet.ports.agents import PlannerRepository, WorkspaceError

LISTED = 50  # tests named in a failure. Others are only counted
MOST_SOURCES = 40  # files of the base that are read to learn what the checks run
NOTED = 20  # oddities of one change that are named. Others are only counted


@dataclass(slots=True)
class ChangeReview:
    """Verifies the commit of one attempt."""

    checks: Checks
    spec: Subtask
    attempt: Attempt
    commit: Sha
    files: frozenset[str]
    """The files of its base."""
    influence: VerdictInfluence
    readings: Mapping[str, CommandReading]
    """Files that each command runs and reads."""
    notes: list[str] = field(default_factory=list)
    """Notes of the second verdict for a human."""

    async def verify(self) -> tuple[f.Failure | None, tuple[f.CheckRun, ...]]:
        """Return the failure of the attempt, if any, and the checks that ran on its commit."""
        criteria = self.checks.rules.resolved(self.spec.acceptance)
        if refused := self._changed_own_tests(criteria) or self._takes_names():
            return refused, ()
        checks = await self.checks.on(self.commit, criteria)
        if failed := tuple(check for check in checks if not check.passed):
            return check_failure(failed), checks
        failure = await self._passes_with_fewer_tests(self.commit, criteria, self.attempt.paths)
        return failure or await self._fails_with_judges_of_base(criteria), checks

    def _changed_own_tests(self, criteria: Sequence[Criterion]) -> f.Failure | None:
        """A failure if it changed tests of its base that its own criteria run. It may add tests."""
        named = named_tests(criteria, filter(is_test, self.influence.judges))
        if not named:
            return None
        why = "its own checks run these tests, so `touches` must name them if the subtask changes them"
        return f.Failure(
            kind="bounds", summary="changes the tests that its own checks run", evidence="\n".join((*named, why))
        )

    def _takes_names(self) -> f.Failure | None:
        """A failure if it added paths that would be imported or run instead of something else."""
        if not self.influence.shadows:
            return None
        lines = [f"{path} {what}" for path, what in self.influence.shadows]
        why = "Use another name. If this is intended, list the exact file in `touches`."
        return f.Failure(
            kind="bounds", summary="adds files that shadow others", evidence="\n".join((*lines[:LISTED], why))
        )

    async def _passes_with_fewer_tests(
        self, commit: Sha, criteria: Sequence[Criterion], changed: Sequence[str]
    ) -> f.Failure | None:
        """A failure if checks pass because tests that ran on the base did not run or were skipped."""
        base, touches = self.attempt.base, self.spec.touches
        lost = await self.checks.lost(commit, base, criteria, changed=changed, touches=touches)
        if not lost:
            return None
        names = list(dict.fromkeys(name for tests in lost.values() for name in tests))
        more = [f"... and {len(names) - LISTED} more"] if len(names) > LISTED else []
        why = "These tests ran on the base but do not pass now, although the exit code is 0: skipped or not run."
        return f.Failure(
            kind="check",
            summary=f"passes without tests that ran on its base: {', '.join(lost)}",
            evidence="\n".join((why, *names[:LISTED], *more, "If this is intended, list their files in `touches`.")),
        )

    async def _fails_with_judges_of_base(self, criteria: Sequence[Criterion]) -> f.Failure | None:
        """A failure if it passes only with judges that it changed or tests that it added."""
        second = SecondVerdict(self.checks, self.commit, self.attempt.base, self.files, self.influence, self.readings)
        red, notes = await second.red(criteria)
        self.notes += notes
        if red:
            return refusal(red, self.influence)
        for paths, asked in second.rounds(criteria):
            commit = await self.checks.worktrees.put_back(self.commit, self.attempt.base, paths)
            others = [path for path in self.attempt.paths if path not in paths]
            if failure := await self._passes_with_fewer_tests(commit, asked, others):
                return failure
        return None

    async def warnings(self, at: float) -> list[f.WarningNoted]:
        """Return warnings that a human should read before merging the result."""
        texts = [
            *(f"{path} is a {_kind(path)} of the base, and was changed" for path in self.influence.judges),
            *(f"{path} {why}" for path, why in self.influence.noted),
            *self.notes,
        ]
        patch = await self.checks.commits.diff(self.attempt.base, self.commit)
        odd = [f"{path} {what}" for path, what in oddities(patch)]
        texts += odd[:NOTED]
        texts += [f"{len(odd) - NOTED} more oddities"] if len(odd) > NOTED else []
        return [f.WarningNoted(at=at, text=f"for review: {self.spec.id}: {text}") for text in texts]


def _kind(path: str) -> str:
    return "test" if is_test(path) else "judge"


async def review(checks: Checks, spec: Subtask, attempt: Attempt, commit: Sha) -> ChangeReview:
    """The review of an attempt's commit."""
    repository = checks.commits.at(attempt.base)
    files = frozenset(await repository.list_files())
    criteria = (*checks.rules.resolved(spec.acceptance), *checks.rules.criteria)
    readings, own, found = dict[str, CommandReading](), CommandReading(), CommandReading()
    for criterion in criteria:
        named = reading(criterion.run or "")
        readings[criterion.run or ""] = read = await follow(named, repository, files)
        own, found = own | named, found | read
    turned = influence(attempt.paths, files, spec.touches, found, own)
    return ChangeReview(checks, spec, attempt, commit, files, turned, readings)


async def follow(found: CommandReading, repository: PlannerRepository, files: Collection[str]) -> CommandReading:
    """Return a reading extended by the files that the base refers to."""
    seen = set[tuple[object, ...]]()
    waiting = list(found.sources)
    while waiting and len(seen) < MOST_SOURCES:
        source = waiting.pop(0)
        for path in source.paths:
            key = (path, source.kind, source.names)
            if path not in files or key in seen:
                continue
            seen.add(key)
            try:
                more = reading_of(source, path, await repository.read_file(path))
            except WorkspaceError:
                continue  # a name that can't be read: a link, or a path that no plan may contain
            found |= more
            waiting += more.sources
    return found


# ---- second verdict --------------------------------------------------------------------------------------------------
# The second verdict on a change: with the judges of its base, and without the tests that it added.
#
# Built on the candidate and never to land: the tree that was tested is still the tree that is published
# (docs/decisions/0036).


PYTEST_FOUND_NONE = frozenset({4, 5})  # its exit codes for "no such file" and "no tests collected"


@dataclass(frozen=True, slots=True)
class SecondVerdict:
    """Repeats the checks of a change without the change's own tests and judges."""

    checks: Checks
    commit: Sha
    base: Sha
    files: frozenset[str]
    """The files of its base."""
    influence: VerdictInfluence
    readings: Mapping[str, CommandReading]
    """Files that each command runs and reads."""

    async def red(self, criteria: Sequence[Criterion]) -> tuple[tuple[f.CheckRun, ...], tuple[str, ...]]:
        """Return the checks that pass only with the change's own files, and notes for a human.

        The gate runs with the criteria. Checks that failed on the run's base are ignored.
        """
        red, notes = list[f.CheckRun](), list[str]()
        for paths, asked in self.rounds(criteria):
            commit = await self.checks.worktrees.put_back(self.commit, self.base, paths)
            before = {check.command for check in self.checks.engine.state.red_base}
            for run in await self.checks.on(commit, asked):
                if run.fine or run.command in before:
                    continue
                if self.influence.tests and await self._found_no_test(commit, run):
                    notes.append(f"{run.criterion} runs no tests except those added by the change")
                else:
                    red.append(run)
        return tuple(red), tuple(dict.fromkeys(notes))

    def rounds(self, criteria: Sequence[Criterion]) -> Iterator[tuple[tuple[str, ...], tuple[Criterion, ...]]]:
        """Return the files to restore or remove, and the checks that then run.

        Each check gets its own original files back. A criterion that names a new test keeps that test.
        """
        asks_for_new = naming(criteria, self.influence.tests, self.files)
        asked = dict[tuple[str, ...], list[Criterion]]()
        for criterion in (*criteria, *self.checks.rules.criteria):
            read = self.readings.get(criterion.run or "", CommandReading())
            judges = tuple(path for path in self.influence.judges if is_test(path) or read.is_judge(path))
            tests = () if criterion in asks_for_new else self.influence.tests
            asked.setdefault((*judges, *tests), []).append(criterion)
        yield from ((paths, tuple(group)) for paths, group in asked.items() if paths)

    async def _found_no_test(self, commit: Sha, run: f.CheckRun) -> bool:
        """Return whether a failed check is inconclusive, because no tests were left or none of them failed."""
        ran = await self.checks.ran_tests(commit, run.command)
        if ran is not None and not run.timed_out:
            return ran.failed == 0
        return has_no_tests(run.output) or (run.exit_code in PYTEST_FOUND_NONE and self.checks.reports(run.command))


def refusal(red: Sequence[f.CheckRun], influence: VerdictInfluence) -> f.Failure:
    """Return the failure of a change that passes only with its own tests or judges."""
    names = ", ".join(run.criterion for run in red)
    lines = list[str]()
    if influence.judges:
        lines.append(f"These files were restored from the base: {', '.join(influence.judges)}. ")
    if influence.tests:
        lines.append(f"These new tests were left out: {', '.join(influence.tests)}. ")
    if influence.judges:
        what = "the tests that the change modifies" + (" or adds" if influence.tests else "")
        lines.append("To change them, list them in `touches`.")
    else:
        what = "the tests that the change adds"
        lines.append("If new tests should decide, name them in the command of a criterion.")
    return f.Failure(
        kind="bounds",
        summary=f"passes only with {what}: {names}",
        evidence=f"{''.join(lines)}\n\n{evidence(tuple(red))}",
    )
