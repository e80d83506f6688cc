"""Carries out orders with the worktrees and workers of this process. Does not record or decide anything.

The caller supplies the meter of model calls, a callback for each step, and a place for notes about errors after the
work.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from fleet.core.base.ids import SubtaskId
from fleet.core.facts import facts as f
from fleet.engine.internal_errors import TRY_AGAIN_S, failure_of, persist, unwrapped
from fleet.ports.agents import DrainingError, Meter, Worker
from fleet.ports.orders import AttemptOrder, AttemptResult, ChecksOrder, Tell, WorkerFinished, WorktreeReady
from fleet.ports.worktrees import Change, EffectError, Lease, OpenLease

LeaveOut = Callable[[str, Exception], None]


def _ignore(what: str, error: Exception) -> None:
    """Ignore errors in optional steps."""
    del what, error


@dataclass(frozen=True, slots=True)
class ThisMachine:
    """Satisfies `Node` in this process."""

    open_lease: OpenLease
    workers: Mapping[str, Worker] = field(default_factory=dict)
    programs: frozenset[str] = frozenset()
    """Workers that are programs. A program that fails is not run again, because it may have had effects."""
    leave_out: LeaveOut = _ignore
    """Takes the step that failed after the work was done, and its error."""
    give_up: Callable[[f.Failure], None] = lambda _: None
    """Raises if a failure means that the disk is full."""
    again_s: float = TRY_AGAIN_S
    """The first pause before work is committed again where the machine kept it from that."""

    async def attempt(self, order: AttemptOrder, meter: Meter, tell: Tell) -> AttemptResult:
        result = None
        try:
            async with self.open_lease(order.base) as lease:
                await tell(WorktreeReady())
                result = await self._work(order, lease, meter, tell)
        except Exception as error:
            if result is None:
                raise
            self.leave_out(f"cleaning up after the work on {order.brief.subtask.id}", error)  # which is done
        return result

    async def check(self, order: ChecksOrder) -> tuple[f.CheckRun, ...]:
        runs = list[f.CheckRun]()
        for criterion in order.criteria:
            async with self.open_lease(order.commit) as lease:
                runs.append(await lease.check(criterion, lands=order.lands))
        return tuple(runs)

    async def _work(self, order: AttemptOrder, lease: Lease, meter: Meter, tell: Tell) -> AttemptResult:
        """Run the worker, and commit its change."""
        brief = order.brief
        try:
            outcome = await self.workers[order.worker].run(brief, lease.workspace, meter)
        except Exception as error:
            is_program = order.worker in self.programs
            if isinstance(unwrapped(error), DrainingError | EffectError) or not (meter.called or is_program):
                raise
            outcome = failure_of(error, "ran the worker")
        await tell(WorkerFinished())
        report = outcome if isinstance(outcome, f.Report) else None
        signature = order.signature(report)
        commit = partial(lease.commit, touches=brief.subtask.touches)
        if report is not None and report.status == "done":
            step = partial(commit, signature)
            committed = await persist(step, "committed the work", check=self.give_up, again_s=self.again_s)
            return AttemptResult(report, committed)
        return AttemptResult(outcome, await self._keep(partial(commit, signature), brief.subtask.id))

    async def _keep(self, commit: Callable[[], Awaitable[Change | f.Failure]], id_: SubtaskId) -> Change | f.Failure:
        """Keep the change of a failed attempt, as far as that is allowed: the next attempt may use it."""
        nothing = f.Failure(kind="other", summary="can't keep the unfinished work")
        try:
            return await commit()
        except EffectError as error:
            return error.failure
        except Exception as error:  # noqa: BLE001 - unfinished work is a help, not a result
            self.leave_out(f"the unfinished work of {id_}", error)
            return nothing
