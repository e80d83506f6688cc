"""Checks on commits: each command once on a tree, red ones again, and what a result then counts for.

A tree and a command have one answer, whoever asks: the attempt, the merged tree, the base, or this run after a crash. A
red check is run again on a fresh checkout; if it passes then it is flaky, which is neither success nor anyone's fault
(docs/decisions/0021).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from anyio import CapacityLimiter, create_task_group

from fleet.core import facts as f
from fleet.core.expected import missing, starts_pytest
from fleet.core.failures import red_guard, vacuous
from fleet.core.plan import Criterion
from fleet.meter import Record
from fleet.ports import Clock, Worktrees
from fleet.together import SIDE_BY_SIDE, Together

How = Literal["once", "fresh", "sure"]
"""One answer will do, an old one too; a red one has to be seen now; a red one has to be seen again."""
NO_REPORT = (
    "[fleet] exit code 0, but pytest did not report which tests it ran: something ended it before its end, or its "
    "options keep it from reporting (then set checks.expected_tests = false)"
)
LEAST_SLOTS = 4


@dataclass(frozen=True, slots=True)
class Gate:
    """The checks that are not a subtask's own."""

    criteria: tuple[Criterion, ...] = ()
    named: Mapping[str, str] = field(default_factory=dict)
    """Commands by the name plans give them."""
    reruns: int = 1
    """How often a red check is run again before it is believed."""
    slots: int = LEAST_SLOTS
    """How many checkouts of bases may be asked side by side."""
    expected_tests: bool = True
    """Whether a runner that can say which tests it ran has to."""

    def resolved(self, criteria: Sequence[Criterion]) -> tuple[Criterion, ...]:
        """Criteria with a command. What only a worker's own exit code can tell has none."""
        filled = (
            criterion if criterion.run else criterion.model_copy(update={"run": self.named.get(criterion.criterion)})
            for criterion in criteria
        )
        return tuple(criterion for criterion in filled if criterion.run)


@dataclass(slots=True)
class Checks:
    """Runs the checks of one run, and remembers what they said."""

    engine: Record
    worktrees: Worktrees
    clock: Clock
    rules: Gate
    _known: dict[tuple[str, str], f.CheckRun] = field(default_factory=dict)
    _sure: set[tuple[str, str]] = field(default_factory=set)
    """Which of them were run again where they were red."""
    _trees: dict[str, str] = field(default_factory=dict)
    _heard: dict[tuple[str, str], f.RanTests] = field(default_factory=dict)
    """Which tests a command ran on a tree. Known for this life of the run only."""
    _reporting: set[str] = field(default_factory=set)
    """Commands that said so once, and owe it since."""

    _together: Together = field(init=False)

    def __post_init__(self) -> None:
        """What an earlier life of the run found out is known. On a base, red was expected and seen once."""
        self._together = Together(self.worktrees, self.clock, CapacityLimiter(self.rules.slots))
        attempts = [attempt for subtask in self.engine.state.subtasks.values() for attempt in subtask.attempts]
        for attempt in attempts:
            for run in attempt.before:
                self._keep(run, sure=False)
        for attempt in attempts:
            for run in attempt.checks:
                self._keep(run, sure=True)

    async def before(self, base: str, criteria: Sequence[Criterion]) -> tuple[f.CheckRun, ...]:
        """On a base, where they should be red: one run is enough."""
        return await self._run(base, criteria, "once")

    async def before_work(self, acceptance: Sequence[Criterion], base: str) -> tuple[f.CheckRun, ...] | f.Failure:
        """What a subtask's checks say of its base, asked before a worker costs anything.

        One that has to fail there and passes proves nothing; a guard that is red there can't tell whose fault it is.
        """
        expected = self.rules.resolved([criterion for criterion in acceptance if criterion.fails_before])
        guards = self.rules.resolved([criterion for criterion in acceptance if not criterion.fails_before])
        red = await self.before(base, expected)
        if passing := tuple(run for run in red if run.passed):
            return vacuous(passing, base)
        green = await self.on(base, guards)
        allowed = {check.command for check in self.engine.state.red_base}
        if failing := tuple(run for run in green if not run.fine and run.command not in allowed):
            return red_guard(failing, base)
        return tuple(run.model_copy(update={"output": ""}) for run in (*red, *green))

    async def on(self, commit: str, criteria: Sequence[Criterion]) -> tuple[f.CheckRun, ...]:
        """On a commit, where they should pass."""
        return await self._run(commit, criteria, "sure")

    async def merged(
        self, commit: str, own: Sequence[Criterion], *, sure: bool, ran: Counter[str] | None = None
    ) -> tuple[f.CheckRun, ...]:
        """The gate, and the criteria of those who are merged, side by side on clean checkouts of one tree.

        `ran` counts what was run for it: not what was known.
        """
        gated = {criterion.run for criterion in self.rules.criteria}
        unique = {criterion.run: criterion for criterion in self.rules.resolved(own) if criterion.run not in gated}
        rest = tuple(unique.values())
        sides = [rest[at : at + SIDE_BY_SIDE] for at in range(0, len(rest), SIDE_BY_SIDE)]
        return await self._side_by_side(commit, [self.rules.criteria, *sides], sure=sure, ran=ran)

    async def _side_by_side(
        self, commit: str, sides: Sequence[Sequence[Criterion]], *, sure: bool, ran: Counter[str] | None
    ) -> tuple[f.CheckRun, ...]:
        results: dict[int, tuple[f.CheckRun, ...]] = {}

        async def check(index: int, criteria: Sequence[Criterion]) -> None:
            results[index] = await self._run(commit, criteria, "sure" if sure else "fresh", ran)

        async with create_task_group() as tasks:
            for index, criteria in enumerate(sides):
                tasks.start_soon(check, index, criteria)
        return tuple(run for index in range(len(sides)) for run in results[index])

    async def _run(
        self, commit: str, criteria: Sequence[Criterion], how: How, ran: Counter[str] | None = None
    ) -> tuple[f.CheckRun, ...]:
        tree = await self.tree(commit) if criteria else ""
        asked = {criterion.run or "": criterion for criterion in criteria}
        answers = {run: known for run in asked if (known := self._answer(tree, run, how)) is not None}
        if unknown := [criterion for run, criterion in asked.items() if run not in answers]:
            answers |= await (self._with_others(commit, unknown) if how == "once" else self._once(commit, unknown, ran))
        for _ in range(self.rules.reruns if how == "sure" else 0):
            doubted = [run for run, answer in answers.items() if not answer.fine and (tree, run) not in self._sure]
            if not doubted:
                break
            again = await self._once(commit, [asked[run] for run in doubted], ran)
            for run, second in again.items():
                if second.passed:
                    await self._tell(second, commit)
                    answers[run] = answers[run].model_copy(update={"flaky": True})
        for run, answer in answers.items():
            answers[run] = self._keep(answer.model_copy(update={"tree": tree}), sure=how == "sure")
        return tuple(answers[c.run or ""].model_copy(update={"criterion": c.criterion}) for c in criteria)

    async def _with_others(self, commit: str, criteria: Sequence[Criterion]) -> dict[str, f.CheckRun]:
        """In checkouts that others use, too. What passes there is asked again in one of its own: others may be why."""
        tree, answers = await self.tree(commit), dict[str, f.CheckRun]()
        for criterion in criteria:
            run, shared = await self._together.ask(commit, criterion)
            if run.passed and shared:
                answers |= await self._once(commit, [criterion], None)
            else:
                answers[run.command] = self._believed(tree, run)
        return answers

    async def _once(
        self, commit: str, criteria: Sequence[Criterion], ran: Counter[str] | None
    ) -> dict[str, f.CheckRun]:
        if ran is not None:
            ran.update(criterion.run or "" for criterion in criteria)
        async with self.worktrees.lease(commit) as lease:
            runs = await lease.check(criteria)
        tree = await self.tree(commit)
        return {run.command: self._believed(tree, run) for run in runs}

    def _believed(self, tree: str, run: f.CheckRun) -> f.CheckRun:
        """A success of a runner that owes a report is none without it: something ended it before its end."""
        if run.heard is not None:
            self._heard[tree, run.command] = run.heard
            self._reporting.add(run.command)
            return run.model_copy(update={"heard": None})
        owes = run.command in self._reporting or starts_pytest(run.command)
        if not (self.rules.expected_tests and run.passed and owes):
            return run
        return run.model_copy(update={"passed": False, "output": f"{run.output}\n{NO_REPORT}".strip()})

    async def lost(
        self, commit: str, base: str, criteria: Sequence[Criterion], *, changed: Sequence[str], touches: Sequence[str]
    ) -> dict[str, tuple[str, ...]]:
        """By criterion, the tests that a command ran on the base and that do not pass on a commit where it does."""
        found = dict[str, tuple[str, ...]]()
        for criterion in criteria if self.rules.expected_tests else ():
            command = criterion.run or ""
            now = self._heard.get((await self.tree(commit), command))
            if now is None:
                continue
            if (await self.tree(base), command) not in self._heard:  # asked in an earlier life, if ever
                await self._once(base, [criterion], None)
            before = self._heard.get((await self.tree(base), command), f.RanTests())
            if gone := missing(before, now, changed=changed, touches=touches):
                found[criterion.criterion] = gone
        return found

    async def _tell(self, run: f.CheckRun, commit: str) -> None:
        text = f"flaky: {run.criterion} ({run.command}) failed on {commit[:12]}, and passed when it was run again"
        await self.engine.record(f.WarningNoted(at=self.clock.now(), text=text))

    def _answer(self, tree: str, command: str, how: How) -> f.CheckRun | None:
        known = self._known.get((tree, command))
        doubted = known is not None and not known.fine and (tree, command) not in self._sure
        return None if doubted and how == "fresh" else known

    def _keep(self, run: f.CheckRun, *, sure: bool) -> f.CheckRun:
        """One that ran out of time says nothing about the tree: another may have more of it."""
        if run.tests is not None:
            self._reporting.add(run.command)
        if run.tree and not run.timed_out:
            self._known[run.tree, run.command] = run
            if sure:
                self._sure.add((run.tree, run.command))
        return run

    async def tree(self, commit: str) -> str:
        if commit not in self._trees:
            self._trees[commit] = await self.worktrees.tree(commit)
        return self._trees[commit]
