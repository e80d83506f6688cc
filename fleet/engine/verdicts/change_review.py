"""Reviews a change before it counts: refuses what would turn its own verdict, and reports oddities to a person.

What a worker writes runs in the same process as the tests that judge it, so no list of forbidden code is complete.
Code that looks suspicious does not prove bad faith either: it lands if its checks pass, and a warning names it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from fleet.core.base.ids import Sha
from fleet.core.plans.plan import Criterion, Subtask
from fleet.core.state import facts as f
from fleet.core.state.failures import check_failure
from fleet.core.state.subtask_state import Attempt
from fleet.core.verdicts.commands import Reading, reading
from fleet.core.verdicts.judges import Influence, influence
from fleet.core.verdicts.oddities import oddities
from fleet.core.verdicts.sources import reading_of
from fleet.core.verdicts.tests import is_test, named_tests
from fleet.engine.verdicts.checks import Checks
from fleet.engine.verdicts.second_verdict import SecondVerdict, refusal
from fleet.ports.agents import Repository, WorkspaceError

LISTED = 50  # tests named in a failure; the others are counted
MOST_SOURCES = 40  # files of the base that are read to learn what the checks run
NOTED = 20  # oddities of one change that are named; the others are counted


@dataclass(slots=True)
class ChangeReview:
    """Verifies the commit of one attempt."""

    checks: Checks
    spec: Subtask
    attempt: Attempt
    commit: Sha
    files: frozenset[str]
    """The files of its base."""
    influence: Influence
    readings: Mapping[str, Reading]
    """What each command runs and reads."""
    notes: list[str] = field(default_factory=list)
    """What the second verdict leaves to a person."""

    async def verify(self) -> tuple[f.Failure | None, tuple[f.CheckRun, ...]]:
        """Why the attempt failed, if it did, and the checks that were run on its commit."""
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
        why = "its own checks run these tests: only a subtask whose `touches` names them may change them"
        return f.Failure(
            kind="bounds", summary="changes the tests that its own checks run", evidence="\n".join((*named, why))
        )

    def _takes_names(self) -> f.Failure | None:
        """A failure if it added paths that would be imported or run instead of something else."""
        if not self.influence.shadows:
            return None
        lines = [f"{path} {what}" for path, what in self.influence.shadows]
        why = "Use another name; if this is intended, `touches` has to name the file itself."
        return f.Failure(
            kind="bounds", summary="adds files that take the name of others", evidence="\n".join((*lines[:LISTED], why))
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
        why = "These ran on its base but do not pass now, although the exit code is 0: they were skipped or never ran."
        return f.Failure(
            kind="check",
            summary=f"passes without tests that ran on its base: {', '.join(lost)}",
            evidence="\n".join((why, *names[:LISTED], *more, "If this is intended, name their files in `touches`.")),
        )

    async def _fails_with_judges_of_base(self, criteria: Sequence[Criterion]) -> f.Failure | None:
        """A failure if it passes only with judges that it changed or tests that it added."""
        second = SecondVerdict(self.checks, self.commit, self.attempt.base, self.files, self.influence, self.readings)
        red, notes = await second.red(criteria)
        self.notes += notes
        if red:
            return refusal(red, self.influence)
        for paths, asked in second.rounds(criteria):
            commit = await self.checks.worktrees.restored(self.commit, self.attempt.base, paths)
            others = [path for path in self.attempt.paths if path not in paths]
            if failure := await self._passes_with_fewer_tests(commit, asked, others):
                return failure
        return None

    async def warnings(self, at: float) -> list[f.WarningNoted]:
        """What a person should look at before taking the result."""
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
    readings, own, found = dict[str, Reading](), Reading(), Reading()
    for criterion in criteria:
        named = reading(criterion.run or "")
        readings[criterion.run or ""] = read = await follow(named, repository, files)
        own, found = own | named, found | read
    turned = influence(attempt.paths, files, spec.touches, found, own)
    return ChangeReview(checks, spec, attempt, commit, files, turned, readings)


async def follow(found: Reading, repository: Repository, files: Collection[str]) -> Reading:
    """A reading with what the files of the base say that it leads to."""
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
