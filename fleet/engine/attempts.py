"""Carries out attempts at subtasks: starts a worker, records its commit, and runs the checks on it.

Only the work itself calls a model. Steps before and after it can be repeated at no cost.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import assert_never

from fleet.core.base.ids import Sha, SubtaskId
from fleet.core.facts import facts as f
from fleet.core.facts.fact_parts import Instruction
from fleet.core.facts.failures import reported_failure
from fleet.core.plans.plan import PLANNER, Subtask
from fleet.core.policy.effects import RunAttempt, VerifyAttempt
from fleet.core.state.machines import wanted_labels
from fleet.core.state.subtasks import Attempt
from fleet.engine.adapters import Adapters, ChangeReviews
from fleet.engine.briefs import WorkerBriefs
from fleet.engine.change_review import review
from fleet.engine.checks import Checks
from fleet.engine.internal_errors import Advice, persist
from fleet.engine.reservations import CallMeter, Purpose, RunBudget
from fleet.ports.journal import Clock, Recorder
from fleet.ports.operator import Operator
from fleet.ports.orders import AttemptOrder, AttemptResult, Node, Progress, Tell, WorkerFinished, WorktreeReady
from fleet.ports.worktrees import Change

NO_MODEL = "no model is available to review it"


@dataclass(slots=True)
class Attempts:
    """Carries out the attempts of one run."""

    engine: Recorder
    adapters: Adapters
    budget: RunBudget
    checks: Checks
    briefs: WorkerBriefs
    advice: Advice
    node: Node
    """Machine that runs the worker."""
    _reviews: ChangeReviews | None = None
    """Opened once they are wanted."""
    _spent: set[tuple[SubtaskId, int]] = field(default_factory=set)
    """The attempts whose worker has called a model or started a program: these are not done twice."""

    def may_repeat(self, command: RunAttempt) -> bool:
        """Return whether an attempt can be repeated after an internal error without paying twice."""
        return (command.subtask, command.number) not in self._spent

    def current(self, subtask: SubtaskId) -> tuple[Subtask, Attempt]:
        state = self.engine.state
        return state.spec(subtask), state.subtasks[subtask].attempts[-1]

    async def check_before_work(self, spec: Subtask, attempt: Attempt) -> tuple[f.CheckRun, ...] | None:
        """Run the checks of a subtask on its base. Return None if they prove nothing, which ends the attempt."""
        checks = await self.checks.before_work(spec.acceptance, attempt.base)
        if isinstance(checks, f.Failure):
            await self.failed(spec.id, attempt.number, checks)
            return None
        return checks

    async def proves_nothing(self, area: SubtaskId) -> bool:
        """Return whether the checks of an area already pass on its base, which ends its attempt."""
        return await self.check_before_work(*self.current(area)) is None

    async def run(self, command: RunAttempt) -> None:
        run, worktrees = self.engine.state.run, self.adapters.worktrees
        spec, attempt = self.current(command.subtask)
        change = await worktrees.pinned(run, spec.id, attempt.number)
        if change is not None:  # an earlier life of this attempt got that far
            report = f.Report(status="done", summary="finished before an interruption")
            await self._finished(spec, attempt, AttemptResult(report, change))
            return
        before = await self.check_before_work(spec, attempt)
        if before is None:
            return
        work = await self.node.attempt(*await self._order(spec, attempt, before))
        finish = self._finished if work.finished else self._unfinished
        await persist(partial(finish, spec, attempt, work), "recorded the work", again_s=self.adapters.again_s)

    async def _order(
        self, spec: Subtask, attempt: Attempt, before: tuple[f.CheckRun, ...]
    ) -> tuple[AttemptOrder, CallMeter, Tell]:
        """Return the order for a machine, the meter of its calls, and a callback that records its start."""
        brief = await self.briefs.brief(spec, attempt, self.adapters.workers[attempt.worker])
        role: f.Role = "resolver" if attempt.strategy == "resolve" else "worker"
        meter = CallMeter(self.budget, Purpose(role, subtask=spec.id, attempt=attempt.number))

        async def tell(progress: Progress) -> None:
            match progress:
                case WorktreeReady(node=node):
                    await self.engine.record(
                        f.WorkerStarted(
                            at=self._now(), subtask=spec.id, number=attempt.number, before=before, node=node
                        )
                    )
                case WorkerFinished():
                    self._spent.add((spec.id, attempt.number))
                case _:
                    assert_never(progress)

        operator = AttemptOperator(self.engine, self.adapters.clock, spec.id, attempt.number)
        labels = wanted_labels(self.engine.state, spec)
        return AttemptOrder(attempt.base, attempt.worker, replace(brief, operator=operator), labels), meter, tell

    async def _finished(self, spec: Subtask, attempt: Attempt, work: AttemptResult) -> None:
        id_, number, committed = spec.id, attempt.number, work.committed
        report = work.outcome if isinstance(work.outcome, f.Report) else f.Report(status="done", summary="")
        if isinstance(committed, Change):
            commit, paths = committed.commit, committed.paths
            fact = f.AttemptCommitted(
                at=self._now(), subtask=id_, number=number, commit=commit, paths=paths, report=report
            )
            await self.engine.record(fact)
        elif committed.kind == "empty" and self._may_change_nothing(spec, attempt):
            await self.engine.record(f.AttemptUnchanged(at=self._now(), subtask=id_, number=number, report=report))
        else:
            await self.failed(id_, number, committed, report=report)

    def _may_change_nothing(self, spec: Subtask, attempt: Attempt) -> bool:
        """Whether a program did it and no check must fail before the work: then there need be no change."""
        expects_change = any(criterion.fails_before for criterion in self.adapters.gate.resolved(spec.acceptance))
        return attempt.worker in self.adapters.command_workers and not expects_change

    async def _unfinished(self, spec: Subtask, attempt: Attempt, work: AttemptResult) -> None:
        """Record a failed attempt."""
        report = work.outcome if isinstance(work.outcome, f.Report) else None
        failure = work.outcome if isinstance(work.outcome, f.Failure) else reported_failure(work.outcome)
        commit = work.committed.commit if isinstance(work.committed, Change) else None
        await self.failed(spec.id, attempt.number, failure, report=report, commit=commit)

    async def failed(
        self,
        subtask: SubtaskId,
        number: int,
        failure: f.Failure,
        *,
        report: f.Report | None = None,
        commit: Sha | None = None,
        checks: tuple[f.CheckRun, ...] = (),
    ) -> None:
        at = self._now()
        fact = f.AttemptFailed(
            at=at, subtask=subtask, number=number, failure=failure, report=report, commit=commit, checks=checks
        )
        await self.engine.record(fact)

    async def verify(self, command: VerifyAttempt) -> None:
        spec, attempt = self.current(command.subtask)
        if attempt.commit is None:
            return
        change = await review(self.checks, spec, attempt, attempt.commit)
        failure, checks = await change.verify()
        if failure is None:  # a review costs something, so it comes last
            failure, reviewed = await self._review(spec, attempt)
            checks = (*checks, *reviewed)
        if failure is not None:
            await self.failed(spec.id, attempt.number, failure, checks=checks)
            return
        nothing: list[f.WarningNoted] = []
        warnings = await self.advice.take(
            f"review hints for {spec.id}", partial(change.warnings, self._now()), without=nothing
        )
        settled = await self._settled(spec, attempt)
        verified = f.AttemptVerified(at=self._now(), subtask=spec.id, number=attempt.number, checks=checks)
        await self.engine.record(*warnings, *settled, verified)

    async def _review(self, spec: Subtask, attempt: Attempt) -> tuple[f.Failure | None, tuple[f.CheckRun, ...]]:
        """Return the failure of a change in its reviews, if any, and the results. A change without reviews passes."""
        is_asked = self.adapters.reviews_all or any(criterion.review is not None for criterion in spec.acceptance)
        if not is_asked or attempt.unchanged or attempt.worker == PLANNER:
            return None, ()
        reviews = self._open_reviews()
        if reviews is None:
            return f.Failure(kind="configuration", summary=NO_MODEL), ()
        return await reviews.judge(spec, attempt.number)

    async def _settled(self, spec: Subtask, attempt: Attempt) -> tuple[f.FindingsSettled, ...]:
        """Return the outcomes of findings after an attempt has passed."""
        state, nothing = self.engine.state, tuple[f.FindingsSettled, ...]()
        has_votes = any(each.votes for each in state.subtasks[spec.id].attempts)
        if attempt.worker == PLANNER or not (has_votes or "ignored" in state.settled.values()):
            return nothing
        reviews = self._open_reviews()
        if reviews is None:
            return nothing
        settle = partial(reviews.settled, spec, attempt.number)
        return await self.advice.take(f"outcomes of findings about {spec.id}", settle, without=nothing)

    def _open_reviews(self) -> ChangeReviews | None:
        if self._reviews is None and self.adapters.reviews is not None:
            self._reviews = self.adapters.reviews(self.adapters, self.engine, self.budget)
        return self._reviews

    def _now(self) -> float:
        return self.adapters.clock.now()


# ---- instructions ----------------------------------------------------------------------------------------------------
# Instructions of the operator for one attempt.
#
# After a crash, an attempt starts over with a new conversation, so it reads all instructions again.


@dataclass(slots=True)
class AttemptOperator(Operator):
    """Passes the operator's instructions to one attempt."""

    engine: Recorder
    clock: Clock
    subtask: SubtaskId
    number: int
    _read: int = 0
    """Number of the subtask's instructions read so far."""

    def told(self, since: int = 0) -> tuple[Instruction, ...]:
        return self.engine.state.subtasks[self.subtask].instructions[since:]

    async def wait_told(self, count: int) -> None:
        while not self.told(count):
            await self.engine.wait_instructed()

    async def mark_read(self, count: int) -> None:
        if self._read < count <= len(self.told()):
            self._read = count
            await self._record()

    async def read(self) -> Sequence[Instruction]:
        unread = self.unread
        if unread:
            self._read += len(unread)
            await self._record()
        return unread

    async def _record(self) -> None:
        at = self.clock.now()
        read = f.InstructionRead(at=at, subtask=self.subtask, number=self.number, count=self._read)
        await self.engine.record(read)
