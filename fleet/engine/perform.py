"""Carries out commands, one method each. Each method records its result and makes no decision.

Every command can be carried out twice, because a crash can happen between its effect and the record. Marks in git (a
pinned ref, the integration branch) show the effects of an earlier process.
"""

from collections.abc import Awaitable
from functools import partial
from typing import assert_never

from anyio import Lock

from fleet.core.base.ids import Sha
from fleet.core.facts import facts as f
from fleet.core.policy.effects import CallPlanner, CheckBase, Command, Publish, RunAttempt, TestBatch, VerifyAttempt
from fleet.core.policy.remedies import backoff
from fleet.engine.adapters import Adapters
from fleet.engine.attempts import Attempts
from fleet.engine.briefs import WorkerBriefs
from fleet.engine.checks import Checks, NodeTrust
from fleet.engine.internal_errors import Advice, DiskFullError, failure_of, persist, tries_after
from fleet.engine.landing import Lander
from fleet.engine.planner_calls import PlannerCalls
from fleet.engine.reservations import RunBudget
from fleet.engine.this_machine import ThisMachine
from fleet.ports.agents import DrainingError
from fleet.ports.journal import Recorder
from fleet.ports.orders import OtherMachines

STEPS: dict[type[Command], str] = {
    CheckBase: "checked the base",
    CallPlanner: "called the planner",
    RunAttempt: "carried out the attempt",
    VerifyAttempt: "checked the finished work",
    TestBatch: "landed the finished work",
    Publish: "moved the result branch",
}
"""Descriptions of steps for messages about internal errors."""


class Performer:
    """Carries out the commands of one run."""

    def __init__(self, engine: Recorder, adapters: Adapters) -> None:
        self._engine = engine
        self._adapters = adapters
        self._budget = RunBudget(engine, adapters.clock)
        self._advice = Advice(engine, adapters.clock)
        self._local = ThisMachine(
            adapters.worktrees.lease,
            adapters.workers,
            adapters.command_workers,
            leave_out=self._advice.leave_out,
            give_up=self._raise_if_disk_full,
            again_s=adapters.again_s,
        )
        trust, clock = NodeTrust(engine, adapters.clock), adapters.clock
        self._checks = Checks(engine, adapters.worktrees, adapters.commits, clock, adapters.gate, self._local, trust)
        briefs = WorkerBriefs(engine, adapters.commits, self._advice)
        self._attempts = Attempts(engine, adapters, self._budget, self._checks, briefs, self._advice, self._local)
        self._publishing = Lock()
        self._planner_calls = PlannerCalls(engine, adapters, self._budget, self._advice, self._attempts.proves_nothing)
        self._lander = Lander(engine, adapters.integrator, self._checks, adapters.clock)

    def join(self, nodes: OtherMachines) -> None:
        """Have other machines work, too, from now on."""
        self._attempts.node = self._checks.node = nodes.beside(self._local, self._engine)
        self._checks.trust = NodeTrust(self._engine, self._adapters.clock, nodes.distrust, nodes.rest)

    async def __call__(self, command: Command) -> None:
        """Carry out a command. Exceptions become facts here, and nowhere else."""
        step, failure = STEPS[type(command)], None
        perform, tries = partial(self._perform, command), partial(self._tries, command)
        again_s = self._adapters.again_s
        try:
            await persist(perform, step, tries=tries, check=self._raise_if_disk_full, again_s=again_s)
        except DrainingError:
            pass  # do not record a failure: a resumed run repeats the command
        except DiskFullError:
            raise
        except Exception as error:  # noqa: BLE001 - the fleet survives any one effect; the fact keeps the trace
            failure = failure_of(error, step)
        finally:
            await self._advice.take("the record of setup runs", self._record_setups, without=None)
        if failure is not None:
            await self._record_failure(command, failure)

    def _tries(self, command: Command, failure: f.Failure) -> int:
        """Return the maximum number of tries after a failure.

        A step that calls a model is not repeated once it was billed.
        """
        match command:
            case RunAttempt():
                may_repeat = self._attempts.may_repeat(command)
            case CallPlanner():
                may_repeat = self._planner_calls.may_repeat(command)
            case _:
                return tries_after(failure)
        return tries_after(failure) if may_repeat and failure.kind == "internal" else 1

    async def _record_setups(self) -> None:
        """Record the setup runs of the command, with the output of failed ones."""
        for setup in self._adapters.worktrees.finished_setups():
            check = setup.check if not setup.check.passed else setup.check.model_copy(update={"output": ""})
            await self._engine.record(f.SetupRan(at=self._now(), setup=setup.model_copy(update={"check": check})))

    def _raise_if_disk_full(self, failure: f.Failure) -> None:
        """Stop the run if the disk is full, without recording a failure. A resumed run repeats the command."""
        if failure.kind in {"infrastructure", "internal"}:
            text = f"{failure.summary}\n{failure.evidence}"
            advice = self._advice.take_now(
                "the check for a full disk", partial(self._adapters.disk_full, text), without=None
            )
            if advice is not None:
                raise DiskFullError(f"{advice}, then run `fleet resume {self._engine.state.run}`. No work is lost")

    def _perform(self, command: Command) -> Awaitable[None]:
        match command:
            case CheckBase(base=base):
                return self._check_base(base)
            case CallPlanner():
                return self._planner_calls.call(command)
            case RunAttempt():
                return self._attempts.run(command)
            case VerifyAttempt():
                return self._attempts.verify(command)
            case TestBatch(number=number):
                return self._lander.test_batch(number)
            case Publish(tip=tip):
                return self._publish(tip)
            case _:
                assert_never(command)

    async def _record_failure(self, command: Command, failure: f.Failure) -> None:
        match command:
            case CheckBase(base=base):
                await self._engine.record(f.BaseChecked(at=self._now(), base=base, failure=failure))
            case CallPlanner():
                await self._planner_calls.failed(command, failure)
            case RunAttempt(subtask=subtask, number=number) | VerifyAttempt(subtask=subtask, number=number):
                await self._attempts.failed(subtask, number, failure)
            case TestBatch(number=number):
                await self._lander.give_up(number, failure)
            case Publish(tip=tip):
                await self._publish_failed(tip, failure.summary, aside=failure.kind == "internal")
            case _:
                assert_never(command)

    def _now(self) -> float:
        return self._adapters.clock.now()

    # ---- the base

    async def _check_base(self, base: Sha) -> None:
        if not self._adapters.gate.criteria:  # then the failure concerns the setup command
            async with self._adapters.worktrees.lease(base):
                pass
        checks = await self._checks.on(base, self._adapters.gate.criteria)
        facts: list[f.Fact] = [f.BaseChecked(at=self._now(), base=base, checks=checks)]
        if self._engine.state.policy.allow_red_base and not all(check.fine for check in checks):
            text = "the gate fails on the base, which is allowed: it does not block landings until it has passed once"
            facts.append(f.WarningNoted(at=self._now(), text=text))
        await self._engine.record(*facts)

    # ---- publishing

    async def _publish(self, tip: Sha) -> None:
        """Publish one tip at a time: a push that a later one overtakes would seem to fail. Old tips are skipped."""
        async with self._publishing:
            if self._engine.state.tip != tip:
                return
            problem = await self._adapters.publish(self._engine.state.run, tip)
            if problem is None:
                await self._engine.record(f.Published(at=self._now(), tip=tip))
            else:
                await self._publish_failed(tip, problem)

    async def _publish_failed(self, tip: Sha, why: str, *, aside: bool = False) -> None:
        state, now = self._engine.state, self._now()
        wait = backoff(state.policy, key=f"{state.run}/publish", failures=state.publish_failures + 1)
        await self._engine.record(f.PublishFailed(at=now, tip=tip, why=why, not_before=now + wait, aside=aside))
