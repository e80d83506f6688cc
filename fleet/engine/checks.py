"""Checks on commits: runs each command once per tree, repeats failures, and decides which results count.

The result for a tree and a command is reused: by the attempt, the merged tree, the base, and the run after a crash. A
failed check is repeated on a fresh checkout. If it then passes, it is flaky: neither a success nor a failure of the
subtask (docs/decisions/0021).
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Literal, TypeVar

from anyio import create_task_group

from fleet.core.base.ids import Sha
from fleet.core.facts import facts as f
from fleet.core.facts.facts import CheckRun, RanTests, WarningNoted
from fleet.core.facts.failures import red_guard, vacuous
from fleet.core.plans.plan import Criterion, Plan
from fleet.core.state.machines import check_labels
from fleet.core.verdicts.summaries import missing_tests, starts_pytest
from fleet.core.verdicts.verdict_files import NO_RESULTS, findings_problem, is_analysis
from fleet.ports.journal import Clock, Recorder
from fleet.ports.orders import ChecksOrder, Node
from fleet.ports.worktrees import Commits, SetupFailedError, Worktrees

# ---- trust -----------------------------------------------------------------------------------------------------------
# Trust in nodes: compares a node's results for checks with those of this machine. A broken or lying node must not make
# honest work fail or bad work land (docs/decisions/0096). Independent of how checks run.


MOST_WRONG_REDS = 3
"""Number of consecutive wrong failures after which a node gets no work for a while."""


@dataclass(slots=True)
class NodeTrust:
    """Decides whose answers count, by the record of each node of a run.

    A word is an answer that this machine confirms before it counts against work.
    """

    engine: Recorder
    clock: Clock
    distrust: Callable[[str, str], None] = lambda *_: None
    """Takes the name of a node that reported a failing check as passed, and the reason."""
    rest: Callable[[str, str], None] = lambda *_: None
    """Stops new work for a node for a while. Takes the name of the node and the reason."""
    _wrong_reds: Counter[str] = field(default_factory=Counter)
    _named: set[tuple[str, str]] = field(default_factory=set)
    """Nodes and commands that a warning has named."""

    def is_word(self, run: CheckRun) -> bool:
        """Return whether only a node reported the result."""
        return bool(run.node)

    def take(self, run: CheckRun) -> None:
        """A success of a node clears it."""
        if run.node and run.passed:
            self._clear(run.node)

    async def compare(self, word: CheckRun, found: CheckRun, commit: Sha) -> None:
        """Compare a node's result for a check with the result of a trusted machine."""
        if word.fine:
            if not found.fine and not found.node and not found.timed_out:
                why = f"it reported that `{found.command}` passes on {commit[:12]}, but it fails on this machine"
                self.distrust(word.node, why)
        elif found.fine:
            if text := self._add_wrong_red(word.node, found.command, commit[:12]):
                await self.engine.record(WarningNoted(at=self.clock.now(), text=text))
        elif not found.timed_out:
            self._clear(word.node)

    def _clear(self, node: str) -> None:
        """Reset the count after a success or a confirmed failure."""
        del self._wrong_reds[node]

    def _add_wrong_red(self, node: str, command: str, on: str) -> str:
        """Count a wrong failure. Return a warning the first time, otherwise an empty text."""
        self._wrong_reds[node] += 1
        if (times := self._wrong_reds[node]) >= MOST_WRONG_REDS:
            self.rest(node, f"{times} checks in a row failed there but pass here, most recently `{command}` on {on}")
        if (node, command) in self._named:
            return ""
        self._named.add((node, command))
        return f"node {node} reported that `{command}` fails on {on}. It passes on this machine, and that result counts"


# ---- runner reports --------------------------------------------------------------------------------------------------
# Reports of test runners: the tests that ran, and the commands that must report them.
#
# Unconfirmed reports of nodes are kept separately until this machine has confirmed them, because a false report must
# not make honest work fail (docs/decisions/0096).


@dataclass(frozen=True, slots=True)
class Claim:
    """A word that a command reports its tests: on which commit, and whether by their names."""

    commit: Sha
    criterion: Criterion
    names: bool


@dataclass(slots=True)
class RunnerReports:
    """The reports of one life of a run. Earlier lives left only their numbers."""

    _ran: dict[tuple[Sha, str], RanTests] = field(default_factory=dict)
    """By tree and command."""
    _words: set[tuple[Sha, str]] = field(default_factory=set)
    """Reports that only a node made."""
    _reporting: set[str] = field(default_factory=set)
    """Commands that reported or counted their tests once, and must do so from then on."""
    _naming: set[str] = field(default_factory=set)
    """Commands that have reported the names of their tests. From then on, a number is not enough."""
    _claims: dict[str, Claim] = field(default_factory=dict)
    """Claims about commands that are not known to report tests."""

    def take(self, commit: Sha, tree: Sha, run: CheckRun, criterion: Criterion, *, trusted: bool) -> bool:
        """Record the report of a run. Return False if it reported less than expected."""
        key, report = (tree, run.command), run.ran_tests
        if report is None or (report.count is not None and run.command in self._naming):
            if trusted and key in self._words:
                self._forget(key)
            return False
        self._ran[key] = report
        names = report.count is None
        if trusted:
            self._words.discard(key)
            self._reporting.add(run.command)
            if names:
                self._naming.add(run.command)
        else:
            self._words.add(key)
            known = self._claims.get(run.command)
            if known is None or (names and not known.names):
                self._claims[run.command] = Claim(commit, criterion, names)
        return True

    def remember(self, run: CheckRun) -> None:
        """Record that a command counts its tests, according to a trusted run."""
        if run.tests is not None:
            self._reporting.add(run.command)

    def of(self, tree: Sha, command: str) -> RanTests | None:
        """Return the tests that a command ran on a tree, if known since the engine started."""
        return self._ran.get((tree, command))

    def is_word(self, tree: Sha, command: str) -> bool:
        return (tree, command) in self._words

    def reports(self, command: str) -> bool:
        """Whether the runner that this command starts reports its tests."""
        return command in self._reporting

    def claim(self, run: CheckRun) -> Claim | None:
        """Return the claim about a command that reported less, if no trusted run confirmed it."""
        claim = self._claims.get(run.command)
        known = self._naming if claim is not None and claim.names else self._reporting
        if claim is None or run.command in known:
            return None
        reported = run.ran_tests is not None and (run.ran_tests.count is None or not claim.names)
        return None if reported else claim

    def drop_claim(self, command: str) -> None:
        self._claims.pop(command, None)

    def _forget(self, key: tuple[Sha, str]) -> None:
        self._words.discard(key)
        del self._ran[key]


# ---- checks ----------------------------------------------------------------------------------------------------------


Reds = Literal["any", "fresh", "sure"]
"""Failures that count: any known failure, only a new one, or only a repeated one."""
NO_REPORT = (
    "[fleet] exit code 0, but the test runner did not report its tests: the process ended early, or "
    "its options suppress the report (in that case, set checks.expected_tests = false)"
)
BROKEN_SETUP = (
    "[fleet] not run: {how} on this commit, which changes inputs of the setup command (worktrees.lock_files). "
    "Without these changes, it passes"
)
IN_A_ROW = 8  # criteria of a merged tree that run in sequence. Such sequences run concurrently


@dataclass(frozen=True, slots=True)
class Gate:
    """The checks that belong to no subtask, and how checks are judged."""

    criteria: tuple[Criterion, ...] = ()
    named: Mapping[str, str] = field(default_factory=dict)
    """Commands by the names that plans use."""
    results: Mapping[str, str] = field(default_factory=dict)
    """By command, the files that it leaves its results in."""
    reruns: int = 1
    """Number of times a failed check is repeated before it counts as failed."""
    expected_tests: bool = True
    """Whether a runner that can report which tests it ran must do so."""

    def resolved(self, criteria: Sequence[Criterion]) -> tuple[Criterion, ...]:
        """The criteria that have a command. Others are proven by the worker's own exit code, or by a review."""
        return tuple(filled for criterion in criteria if (filled := self._filled(criterion)).run)

    def _filled(self, criterion: Criterion) -> Criterion:
        if criterion.review is not None:
            return criterion
        run = criterion.run or self.named.get(criterion.criterion)
        tests = criterion.tests or self.results.get(run or "")
        changed = (run, tests) != (criterion.run, criterion.tests)
        return criterion.model_copy(update={"run": run, "tests": tests}) if changed else criterion


@dataclass(slots=True)
class Checks:
    """Runs the checks of one run, and remembers their results."""

    engine: Recorder
    worktrees: Worktrees
    commits: Commits
    clock: Clock
    rules: Gate
    node: Node
    """Machine that runs the checks."""
    trust: NodeTrust
    _answers: dict[tuple[Sha, str], f.CheckRun] = field(default_factory=dict)
    """By tree and command."""
    _sure: set[tuple[Sha, str]] = field(default_factory=set)
    """Final results: a failure is final after it was repeated."""
    _trees: dict[Sha, Sha] = field(default_factory=dict)
    _runners: RunnerReports = field(default_factory=RunnerReports)
    _found_on_base: dict[tuple[Sha, str], frozenset[str] | None] = field(default_factory=dict)
    """Findings of analysers on the run's base. Not restored when a run is resumed."""

    _labels_of: tuple[Plan | None, Mapping[str, frozenset[str]]] = (None, MappingProxyType({}))
    """A plan, and the labels that its commands ask for."""

    def __post_init__(self) -> None:
        """Take over the answers of earlier lives. A red answer on a base was expected, so it was not repeated."""
        attempts = [attempt for subtask in self.engine.state.subtasks.values() for attempt in subtask.attempts]
        for attempt in attempts:
            for run in attempt.before:
                self._remember(run, sure=False)
        for attempt in attempts:
            for run in attempt.checks:
                self._remember(run, sure=True)

    async def before_work(self, acceptance: Sequence[Criterion], base: Sha) -> tuple[f.CheckRun, ...] | f.Failure:
        """Check the base of a subtask before paying for a worker.

        A criterion that already passes proves nothing. A guard that already fails can't show who broke it.
        """
        expected = self.rules.resolved([criterion for criterion in acceptance if criterion.fails_before])
        guards = self.rules.resolved([criterion for criterion in acceptance if not criterion.fails_before])
        red = await self._run(base, expected, "any")
        if told := [run for run in red if run.passed and self.trust.is_word(run)]:  # a word alone stops no subtask
            await self.doubt(base, told, expected)
            red = await self._run(base, expected, "any")
        if passing := tuple(run for run in red if run.passed):
            return vacuous(passing, base)
        green = await self._run(base, guards, "sure")
        allowed = {check.command for check in self.engine.state.red_base}
        if failing := tuple(run for run in green if not run.fine and run.command not in allowed):
            return red_guard(failing, base)
        return tuple(run.model_copy(update={"output": ""}) for run in (*red, *green))

    async def on(self, commit: Sha, criteria: Sequence[Criterion]) -> tuple[f.CheckRun, ...]:
        """Check a commit, where the criteria should pass."""
        return await self._run(commit, criteria, "sure", judges_setup=True)

    async def merged(
        self, commit: Sha, criteria: Sequence[Criterion], *, sure: bool, ran: Counter[str] | None = None
    ) -> tuple[f.CheckRun, ...]:
        """Run the gate and the criteria of all merged subtasks, each on a clean checkout of the tree.

        `ran` counts the commands that ran. Reused results are not counted.
        """
        gated = {criterion.run for criterion in self.rules.criteria}
        unique = {criterion.run: criterion for criterion in self.rules.resolved(criteria) if criterion.run not in gated}
        rest = tuple(unique.values())
        sides = [rest[at : at + IN_A_ROW] for at in range(0, len(rest), IN_A_ROW)]
        reds: Reds = "sure" if sure else "fresh"
        run = partial(self._run, commit, reds=reds, ran=ran, judges_setup=True, lands=True)
        calls = [partial(run, side) for side in (self.rules.criteria, *sides)]
        return tuple(chain.from_iterable(await run_side_by_side(calls)))

    async def _run(
        self,
        commit: Sha,
        criteria: Sequence[Criterion],
        reds: Reds,
        ran: Counter[str] | None = None,
        *,
        judges_setup: bool = False,
        lands: bool = False,
    ) -> tuple[f.CheckRun, ...]:
        """Return the results for a commit. With `judges_setup`, a setup failure caused by the commit counts as failed.

        With `lands`, results from a node are not reused for other purposes, because no node may judge its own work.
        """
        run_once = partial(self._run_once, commit, ran=ran, judges_setup=judges_setup, lands=lands)
        tree = await self.tree(commit) if criteria else Sha("")
        asked = {criterion.run or "": criterion for criterion in criteria}
        answers = {run: known for run in asked if (known := self._known(tree, run, reds, lands=lands)) is not None}
        if unknown := [criterion for run, criterion in asked.items() if run not in answers]:
            answers |= await run_once(unknown)
        for time in range(max(self.rules.reruns, not lands) if reds == "sure" else 0):
            doubted = [run for run, answer in answers.items() if not answer.fine and (tree, run) not in self._sure]
            words = [run for run in doubted if not lands and self.trust.is_word(answers[run])]
            others = [run for run in doubted if run not in words] if time < self.rules.reruns else []
            if not words and not others:
                break
            for run, second in (await run_once([asked[run] for run in others])).items() if others else ():
                if second.passed:
                    text = f"flaky: {second.criterion} ({run}) failed on {commit[:12]}, then passed on the same commit"
                    await self.engine.record(f.WarningNoted(at=self.clock.now(), text=text))
                    answers[run] = answers[run].model_copy(update={"flaky": True})
            answers |= await self._confirm(commit, [asked[run] for run in words], answers, run_once)
        for run, answer in answers.items():
            answers[run] = self._remember(answer.model_copy(update={"tree": tree}), sure=reds == "sure")
        return tuple(answers[c.run or ""].model_copy(update={"criterion": c.criterion}) for c in criteria)

    async def _confirm(
        self,
        commit: Sha,
        criteria: Sequence[Criterion],
        reported: Mapping[str, f.CheckRun],
        run_once: Callable[..., Awaitable[dict[str, f.CheckRun]]],
    ) -> dict[str, f.CheckRun]:
        """On a trusted machine, repeat failures that only a node reported."""
        confirmed = await run_once(criteria, lands=True) if criteria else {}
        for command, run in confirmed.items():
            await self.trust.compare(reported[command], run, commit)
        return confirmed

    async def _run_once(
        self,
        commit: Sha,
        criteria: Sequence[Criterion],
        ran: Counter[str] | None = None,
        *,
        judges_setup: bool = False,
        lands: bool = False,
    ) -> dict[str, f.CheckRun]:
        if ran is not None:
            ran.update(criterion.run or "" for criterion in criteria)
        tree = await self.tree(commit)
        try:
            runs = await self._order(self._orders(commit, criteria, lands=lands))
        except SetupFailedError as first:
            is_word = not lands and self.trust.is_word(first.check)
            if not (judges_setup or is_word):
                raise
            lands = lands or is_word
            try:
                runs = await self._order(self._orders(commit, criteria, lands=lands))
            except SetupFailedError as error:  # also the second time
                if not judges_setup:
                    raise
                self._sure.update((tree, criterion.run or "") for criterion in criteria)
                return {criterion.run or "": _without_setup(criterion, error) for criterion in criteria}
            if is_word:
                here = first.check.model_copy(update={"passed": True, "node": ""})
                await self.trust.compare(first.check, here, commit)
        asked = {criterion.run: criterion for criterion in criteria}
        for run in runs:
            self.trust.take(run)
        judged = list[f.CheckRun]()
        for run in runs:
            trusted = lands or not self.trust.is_word(run)
            judged.append(await self._judge(commit, tree, run, asked[run.command], trusted=trusted))
        return {run.command: run for run in judged}

    async def _order(self, orders: Sequence[ChecksOrder]) -> tuple[f.CheckRun, ...]:
        runs = list[f.CheckRun]()
        for order in orders:
            runs += await self.node.check(order)
        return tuple(runs)

    def _orders(self, commit: Sha, criteria: Sequence[Criterion], *, lands: bool) -> list[ChecksOrder]:
        """Return one order for each set of labels that criteria require. Usually there is only one."""
        labels = self._labels()
        wanted = dict.fromkeys(labels.get(criterion.run or "", frozenset()) for criterion in criteria)
        return [
            ChecksOrder(
                commit,
                tuple(each for each in criteria if labels.get(each.run or "", frozenset()) == asked),
                lands,
                asked,
            )
            for asked in wanted
        ]

    def _labels(self) -> Mapping[str, frozenset[str]]:
        """Return the labels of the machine for a command, from the subtasks that it proves."""
        state = self.engine.state
        if self._labels_of[0] is not state.plan:
            found = dict[str, frozenset[str]]()
            for spec in state.plan.subtasks:
                if labels := check_labels(state, spec):
                    for criterion in self.rules.resolved(spec.acceptance):
                        found[criterion.run or ""] = found.get(criterion.run or "", frozenset()) | labels
            self._labels_of = state.plan, found
        return self._labels_of[1]

    async def _judge(
        self, commit: Sha, tree: Sha, run: f.CheckRun, criterion: Criterion, *, trusted: bool
    ) -> f.CheckRun:
        """A success without a report counts as a failure if the runner owes one: something ended it early."""
        if is_analysis(criterion):
            return await self._compared(tree, run, criterion, trusted=trusted)
        claim = self._runners.claim(run) if run.passed and self.rules.expected_tests else None
        if claim is not None and not (trusted and commit == claim.commit):
            await self._run_once(claim.commit, [claim.criterion], judges_setup=True, lands=True)
            self._runners.drop_claim(run.command)
        if self._runners.take(commit, tree, run, criterion, trusted=trusted):
            return run.model_copy(update={"ran_tests": None})
        run = run.model_copy(update={"ran_tests": None, "tests": None})
        owes = self._runners.reports(run.command) or starts_pytest(run.command) or criterion.tests is not None
        if not (self.rules.expected_tests and run.passed and owes):
            return run
        return _refuse(run, NO_RESULTS.format(tests=criterion.tests) if criterion.tests else NO_REPORT)

    async def _compared(self, tree: Sha, run: f.CheckRun, criterion: Criterion, *, trusted: bool) -> f.CheckRun:
        """Return the result of an analyser. It passes if it reported and found nothing new compared to the base.

        The exit code only shows whether there are findings. The base is analysed on a trusted machine, because false
        findings there would hide new ones.
        """
        now = _findings(run)
        run = run.model_copy(update={"ran_tests": None})
        base = self.engine.state.base
        key = base, run.command
        if now is not None and trusted and tree == await self.tree(base):
            self._found_on_base[key] = now
        elif now is not None and key not in self._found_on_base:
            [before] = await self._order(self._orders(base, [criterion], lands=True))
            self._found_on_base[key] = _findings(before)
        problem = findings_problem(criterion, self._found_on_base.get(key), now)
        if problem is not None:
            return _refuse(run, problem)
        return run.model_copy(update={"passed": not run.timed_out})

    async def doubt(self, commit: Sha, reported: Sequence[f.CheckRun], criteria: Sequence[Criterion]) -> None:
        """On this machine, repeat successes that only a node reported.

        Used when a failure is expected: for a commit that failed after it was merged, or for the base of an attempt.
        """
        words = {run.command: run for run in reported if run.fine and self.trust.is_word(run)}
        asked = [criterion for criterion in self.rules.resolved(criteria) if criterion.run in words]
        for run in await self._run(commit, asked, "fresh", lands=True):
            await self.trust.compare(words[run.command], run, commit)

    async def lost(
        self, commit: Sha, base: Sha, criteria: Sequence[Criterion], *, changed: Sequence[str], touches: Sequence[str]
    ) -> dict[str, tuple[str, ...]]:
        """By criterion, the tests that its command ran on the base and that do not pass on the commit."""
        lost = dict[str, tuple[str, ...]]()
        compare = partial(self._missing, commit, base, changed=changed, touches=touches)
        for criterion in criteria if self.rules.expected_tests else ():
            tests = await compare(criterion)
            words = [
                each for each in (commit, base) if self._runners.is_word(await self.tree(each), criterion.run or "")
            ]
            if tests and words:
                for each in words:
                    await self._run_once(each, [criterion], judges_setup=True, lands=True)
                tests = await compare(criterion)
            if tests:
                lost[criterion.criterion] = tests
        return lost

    async def _missing(
        self, commit: Sha, base: Sha, criterion: Criterion, *, changed: Sequence[str], touches: Sequence[str]
    ) -> tuple[str, ...]:
        command = criterion.run or ""
        if (now := self._runners.of(await self.tree(commit), command)) is None:
            return ()
        if self._runners.of(await self.tree(base), command) is None:  # run in an earlier life, or never
            await self._run_once(base, [criterion])
        before = self._runners.of(await self.tree(base), command) or f.RanTests()
        return missing_tests(before, now, changed=changed, touches=touches)

    async def ran_tests(self, commit: Sha, command: str) -> f.RanTests | None:
        """Return the tests that a command ran on a commit, if known since the engine started."""
        return self._runners.of(await self.tree(commit), command)

    def reports(self, command: str) -> bool:
        """Whether the runner that this command starts reports its tests."""
        return self._runners.reports(command)

    def _known(self, tree: Sha, command: str, reds: Reds, *, lands: bool) -> f.CheckRun | None:
        answer = self._answers.get((tree, command))
        if lands and answer is not None and self.trust.is_word(answer):
            return None
        is_doubted = answer is not None and not answer.fine and (tree, command) not in self._sure
        return None if is_doubted and reds == "fresh" else answer

    def _remember(self, run: f.CheckRun, *, sure: bool) -> f.CheckRun:
        """Store results. A timeout is not stored, because the next run may have more time."""
        if not self.trust.is_word(run):
            self._runners.remember(run)
        if run.tree and not run.timed_out:
            self._answers[run.tree, run.command] = run
            if sure:
                self._sure.add((run.tree, run.command))
        return run

    async def tree(self, commit: Sha) -> Sha:
        """The tree of a commit."""
        if commit not in self._trees:
            self._trees[commit] = await self.commits.tree(commit)
        return self._trees[commit]


def _findings(run: f.CheckRun) -> frozenset[str] | None:
    return run.ran_tests.findings if run.ran_tests is not None else None


def _refuse(run: f.CheckRun, why: str) -> f.CheckRun:
    return run.model_copy(update={"passed": False, "output": f"{run.output}\n{why}".strip()})


def _without_setup(criterion: Criterion, error: SetupFailedError) -> f.CheckRun:
    """Return a check that could not run, with the output of the setup command."""
    output = "\n".join((BROKEN_SETUP.format(how=error.failure.summary), error.failure.evidence))
    return error.check.model_copy(
        update={"criterion": criterion.criterion, "command": criterion.run or "", "output": output}
    )


# ---- side by side ----------------------------------------------------------------------------------------------------
# Calls that are made at the same time.


Result = TypeVar("Result")


async def run_side_by_side(calls: Sequence[Callable[[], Awaitable[Result]]]) -> list[Result]:
    """Run all calls concurrently and return their results in order."""
    results: dict[int, Result] = {}

    async def run(index: int) -> None:
        results[index] = await calls[index]()

    async with create_task_group() as tasks:
        for index in range(len(calls)):
            tasks.start_soon(run, index)
    return [results[index] for index in range(len(calls))]
