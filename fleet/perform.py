"""Doing: one method per command. Each records what came of it; none decides what happens next.

Every effect can be asked for twice, because a crash may come between it and its record: marks in git (a pinned ref, the
integration branch) tell what an earlier life of the same effect achieved.
"""

import errno
import traceback
from dataclasses import replace
from typing import assert_never

from anyio import Lock, sleep

from fleet.asking import Asking
from fleet.checking import Checks
from fleet.core import facts as f
from fleet.core.commands import CallPlanner, CheckBase, Command, Publish, RunAttempt, TestBatch, VerifyAttempt
from fleet.core.failures import check_failure, reported_failure
from fleet.core.plan import Subtask
from fleet.core.remedies import backoff
from fleet.core.state import Attempt
from fleet.landing import Lander
from fleet.meter import Ledger, Purse
from fleet.notes import layout, worker_notes
from fleet.ports import (
    Broken,
    Drained,
    FleetError,
    Lease,
    Signature,
    Worker,
    WorkerBrief,
)
from fleet.review import changed_tests, for_review, judged_by_the_base, passes_by_less, refused
from fleet.world import World

CLASH_LIMIT, PATCH_LIMIT = 3_000, 2_900  # characters of a conflict's evidence, and of the change it is about
TRIES = 4
SCARCE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})  # descriptors, memory, processes
TRACE = 4_000  # characters of a bug's trace
TRY_AGAIN_S = 0.5


class DiskFullError(FleetError):
    """Nothing can be written: not a failure of any subtask, and nothing that trying again would mend."""


class Performer:
    """Carries out the commands of one run."""

    def __init__(self, engine: Ledger, world: World) -> None:
        self._engine = engine
        self._world = world
        self._purse = Purse(engine, world.clock)
        self._checks = Checks(engine, world.worktrees, world.clock, world.gate)
        self._noted: dict[str, str] = {}
        self._laid_out: str | None = None
        self._reading = Lock()
        self._publishing = Lock()
        self._asking = Asking(engine, world, self._purse, self._is_vacuous)
        self._lander = Lander(engine, world.integrator, self._checks, world.clock)

    async def __call__(self, command: Command) -> None:
        try:
            await self._persist(command)
        except Drained:
            return  # nothing happened that is worth a fact: it is still to be done, by whoever resumes the run
        except Broken as broken:
            self._see_room(broken.failure)
            await self._record_failure(command, broken.failure)
        except DiskFullError:
            raise
        except Exception as bug:  # noqa: BLE001 - the fleet outlives any one effect; the fact keeps the trace
            failure = crash(bug)
            self._see_room(failure)
            await self._record_failure(command, failure)

    def _see_room(self, failure: f.Failure) -> None:
        """Where the disk is full nothing is recorded as failed: the run stops, and all of it is wanted again then."""
        if failure.kind in {"infrastructure", "crash"}:
            why = self._world.full(f"{failure.summary}\n{failure.evidence}")
            if why is not None:
                raise DiskFullError(f"{why}, then `fleet resume {self._engine.state.run}`; nothing is lost")

    async def _persist(self, command: Command) -> None:
        """Try again what needs no model: when the machine is to blame, a worker's finished work is not done over."""
        tries = 1 if isinstance(command, RunAttempt | CallPlanner) else TRIES
        for number in range(1, tries + 1):
            try:
                await self._perform(command)
            except Broken as broken:
                if number == tries or broken.failure.kind != "infrastructure":
                    raise
                self._see_room(broken.failure)
                await sleep(TRY_AGAIN_S * 2**number)
            else:
                return

    async def _perform(self, command: Command) -> None:
        match command:
            case CheckBase(base=base):
                await self._check_base(base)
            case CallPlanner():
                await self._asking.call(command)
            case RunAttempt():
                await self._run_attempt(command)
            case VerifyAttempt():
                await self._verify_attempt(command)
            case TestBatch(number=number):
                await self._lander.probe(number)
            case Publish():
                await self._publish(command)
            case _:
                assert_never(command)

    async def _record_failure(self, command: Command, failure: f.Failure) -> None:
        match command:
            case CheckBase(base=base):
                await self._engine.record(f.BaseChecked(at=self._now(), base=base, failure=failure))
            case CallPlanner():
                await self._asking.failed(command, failure)
            case RunAttempt(subtask=subtask, number=number) | VerifyAttempt(subtask=subtask, number=number):
                await self._failed(subtask, number, failure)
            case TestBatch(number=number):
                await self._lander.give_up(number, failure)
            case Publish(tip=tip):
                await self._publish_failed(tip, failure.summary)
            case _:
                assert_never(command)

    def _now(self) -> float:
        return self._world.clock.now()

    # ---- the base

    async def _check_base(self, base: str) -> None:
        checks = await self._checks.on(base, self._world.gate.criteria)
        red = [check for check in checks if not check.fine]
        facts: list[f.Fact] = [f.BaseChecked(at=self._now(), base=base, checks=checks)]
        if red and self._engine.state.policy.allow_red_base:
            text = "the gate is red on the base, as was allowed: it holds nothing back until it has passed once"
            facts.append(f.WarningNoted(at=self._now(), text=text))
        await self._engine.record(*facts)

    # ---- attempts

    async def _is_vacuous(self, area: str) -> bool:
        """Whether an area's own checks say nothing, asked before its planner costs anything."""
        spec, attempt = self._attempt(area)
        found = await self._checks.before_work(spec.acceptance, attempt.base)
        if isinstance(found, f.Failure):
            await self._failed(area, attempt.number, found)
        return isinstance(found, f.Failure)

    def _attempt(self, subtask: str) -> tuple[Subtask, Attempt]:
        state = self._engine.state
        return state.spec(subtask), state.subtasks[subtask].attempts[-1]

    async def _run_attempt(self, command: RunAttempt) -> None:
        world, run = self._world, self._engine.state.run
        spec, attempt = self._attempt(command.subtask)
        change = await world.worktrees.pinned(run, spec.id, attempt.number)
        if change is not None:  # an earlier life of this attempt got that far
            report = f.Report(status="done", summary="finished before an interruption")
            await self._committed(command, change.commit, change.paths, report)
            return
        before = await self._checks.before_work(spec.acceptance, attempt.base)
        if isinstance(before, f.Failure):
            await self._failed(spec.id, attempt.number, before)
            return
        worker = world.workers[attempt.worker]
        brief = await self._brief(spec, attempt, worker)
        role: f.Role = "resolver" if attempt.strategy == "resolve" else "worker"
        meter = self._purse.meter(role, subtask=spec.id, attempt=attempt.number)
        about = (*spec.touches, *spec.context) if spec.touches else ()
        async with world.worktrees.lease(attempt.base, about) as lease:
            started = f.WorkerStarted(at=self._now(), subtask=spec.id, number=attempt.number, before=before)
            await self._engine.record(started)
            outcome = await worker.run(brief, lease.desk, meter)
            done = outcome if isinstance(outcome, f.Report) else None
            failure = outcome if isinstance(outcome, f.Failure) else None
            if done is not None and done.status != "done":
                failure = reported_failure(done)
            signature = Signature(
                run=run,
                subtask=spec.id,
                attempt=attempt.number,
                title=spec.title,
                body=done.summary if done is not None else "",
                worker=attempt.worker,
                model=brief.model,
            )
            if failure is not None:
                kept = await self._kept(lease, signature, spec)
                await self._failed(spec.id, attempt.number, failure, report=done, commit=kept)
                return
            committed = await lease.commit(signature, spec.touches)
        if isinstance(committed, f.Failure) and committed.kind == "empty" and done and self._is_step(spec, attempt):
            unchanged = f.AttemptUnchanged(at=self._now(), subtask=spec.id, number=attempt.number, report=done)
            await self._engine.record(unchanged)
        elif isinstance(committed, f.Failure):
            await self._failed(spec.id, attempt.number, committed, report=done)
        elif done is not None:
            await self._committed(command, committed.commit, committed.paths, done)

    def _is_step(self, spec: Subtask, attempt: Attempt) -> bool:
        """Whether a program did it and no check wants to see a difference: then none needs to be there."""
        wanted = any(criterion.fails_before for criterion in self._world.gate.resolved(spec.acceptance))
        return attempt.worker in self._world.steps and not wanted

    async def _kept(self, lease: Lease, signature: Signature, spec: Subtask) -> str | None:
        """What a failed attempt leaves behind, pinned as far as it may be committed: material for the next one."""
        unfinished = replace(signature, title=f"Unfinished: {signature.title}", unfinished=True)
        try:
            kept = await lease.commit(unfinished, spec.touches)
        except Broken:
            return None
        return None if isinstance(kept, f.Failure) else kept.commit

    async def _brief(self, spec: Subtask, attempt: Attempt, worker: Worker) -> WorkerBrief:
        state = self._engine.state
        earlier = state.subtasks[spec.id].attempts[:-1]
        failures = [(past.number, await self._told(past)) for past in earlier if past.failure is not None]
        results = ((need, last.report) for need in spec.depends_on if (last := state.subtasks[need].last) is not None)
        return WorkerBrief(
            run=state.run,
            subtask=spec,
            attempt=attempt.number,
            model=attempt.model or worker.model,
            guidance=attempt.guidance,
            failures=tuple((number, failure) for number, failure in failures if failure is not None),
            results=tuple((need, report) for need, report in results if report is not None),
            layout=await self._layout(),
            notes=await self._notes(attempt.base),
        )

    async def _layout(self) -> str:
        async with self._reading:
            if self._laid_out is None:
                self._laid_out = layout(await self._world.worktrees.at(self._engine.state.base).list_files())
            return self._laid_out

    async def _notes(self, base: str) -> str:
        """Read once for all who begin on the same base."""
        async with self._reading:
            if base not in self._noted:
                self._noted = {base: await worker_notes(self._world.worktrees.at(base))}
            return self._noted[base]

    async def _told(self, past: Attempt) -> f.Failure | None:
        """A failure as the next worker sees it. Work that did not merge, or that was broken off, is shown with it."""
        failure = past.failure
        if failure is None or past.commit is None or not (failure.kind == "conflict" or past.kept):
            return failure
        patch = await self._world.worktrees.diff(past.base, past.commit)
        parts = (failure.evidence[:CLASH_LIMIT], "What that attempt changed:", patch[:PATCH_LIMIT])
        return failure.model_copy(update={"evidence": "\n\n".join(parts)})

    async def _committed(self, command: RunAttempt, commit: str, paths: tuple[str, ...], report: f.Report) -> None:
        await self._engine.record(
            f.AttemptCommitted(
                at=self._now(),
                subtask=command.subtask,
                number=command.number,
                commit=commit,
                paths=paths,
                report=report,
            )
        )

    async def _failed(
        self,
        subtask: str,
        number: int,
        failure: f.Failure,
        *,
        report: f.Report | None = None,
        commit: str | None = None,
        checks: tuple[f.CheckRun, ...] = (),
    ) -> None:
        await self._engine.record(
            f.AttemptFailed(
                at=self._now(),
                subtask=subtask,
                number=number,
                failure=failure,
                report=report,
                commit=commit,
                checks=checks,
            )
        )

    async def _verify_attempt(self, command: VerifyAttempt) -> None:
        spec, attempt = self._attempt(command.subtask)
        criteria = self._world.gate.resolved(spec.acceptance)
        changed = await changed_tests(self._world.worktrees, spec, attempt)
        if (not_its := refused(changed, criteria)) is not None:
            await self._failed(spec.id, attempt.number, not_its)
            return
        checks = await self._checks.on(attempt.commit, criteria) if attempt.commit is not None else ()
        failed = tuple(check for check in checks if not check.passed)
        if failed:
            await self._failed(spec.id, attempt.number, check_failure(failed), checks=checks)
            return
        otherwise = await passes_by_less(self._checks, spec, attempt, criteria)
        otherwise = otherwise or await judged_by_the_base(self._checks, spec, attempt, criteria, changed)
        if otherwise is not None:
            await self._failed(spec.id, attempt.number, otherwise, checks=checks)
            return
        odd = await for_review(self._world.worktrees, spec, attempt, changed, self._now())
        verified = f.AttemptVerified(at=self._now(), subtask=spec.id, number=attempt.number, checks=checks)
        await self._engine.record(*odd, verified)

    # ---- publishing

    async def _publish(self, command: Publish) -> None:
        """One at a time: a push that an earlier one overtakes would seem to fail. An old tip need not be shown."""
        async with self._publishing:
            if self._engine.state.tip != command.tip:
                return
            problem = await self._world.integrator.publish(self._engine.state.run, tip=command.tip)
            if problem is None:
                await self._engine.record(f.Published(at=self._now(), tip=command.tip))
            else:
                await self._publish_failed(command.tip, problem)

    async def _publish_failed(self, tip: str, why: str) -> None:
        state, now = self._engine.state, self._now()
        wait = backoff(state.policy, key=f"{state.run}/publish", failures=state.publish_failures + 1)
        await self._engine.record(f.PublishFailed(at=now, tip=tip, why=why, not_before=now + wait))


def crash(bug: Exception) -> f.Failure:
    """A bug of ours as a fact, or a machine that has no more to give: the fleet outlives it, the trace is kept."""
    trace = "".join(traceback.format_exception(bug))
    while isinstance(bug, ExceptionGroup) and len(bug.exceptions) == 1:  # its tasks say nothing of what went wrong
        bug = bug.exceptions[0]
    if isinstance(bug, Broken):
        return bug.failure
    scarce = isinstance(bug, OSError) and bug.errno in SCARCE
    kind: f.FailureKind = "infrastructure" if scarce else "crash"
    return f.Failure(kind=kind, summary=f"{type(bug).__name__}: {bug}", evidence=trace[-TRACE:])
