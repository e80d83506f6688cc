"""Carries out batches: merges a prefix of the merge queue onto the tip, tests the merged tree, and moves the branch.

The branch moves only by compare-and-swap, only to a tree that passed, and for one result at a time. A crash between
the move and its record is repaired by reading the branch: commits name the subtask they belong to.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from anyio import CapacityLimiter, Lock

from fleet.core.base.ids import Sha, SubtaskId
from fleet.core.facts import facts as f
from fleet.core.policy.landing import every_tree, send_back
from fleet.core.state.state import RunState
from fleet.engine.checks import IN_A_ROW, Checks, run_side_by_side
from fleet.engine.internal_errors import failure_of
from fleet.ports.journal import Clock, Recorder
from fleet.ports.worktrees import EffectError, Integrator, Merged

OUTPUT_KEPT = 1_000  # characters of a passing check's output in the journal. Its log has the full output


@dataclass(slots=True)
class Lander:
    """Carries out the batches of one run."""

    engine: Recorder
    integrator: Integrator
    checks: Checks
    clock: Clock
    _moving: Lock = field(default_factory=Lock)
    _merging: Lock = field(default_factory=Lock)
    _merged: dict[tuple[Sha, Sha], Merged] = field(default_factory=dict)
    """By tip and commit: a longer batch builds on the commits of a shorter one."""
    _runs: dict[int, Counter[str]] = field(default_factory=dict)
    """Number of runs of each command for a batch."""

    async def test_batch(self, number: int) -> None:
        """Test one prefix of the queue, and land it if it is green."""
        if await self._record_what_landed_before_a_crash(number):
            return
        state = self.engine.state
        batch = state.landing.open_batch(number)
        if batch is None:
            return
        await self._test(number, state, batch.members, alone=batch.alone)

    async def _test(self, number: int, state: RunState, members: Sequence[f.Member], *, alone: bool) -> None:
        merged = await self._merge(state.tip, members)
        if not merged.landed:
            await self._record(number, ejected=_ejected(merged))
        elif alone:
            await self._test_alone(number, state, merged)
        elif every_tree(state, [member.subtask for member in members]):
            await self._test_each_commit(number, state, merged)
        else:
            await self._test_last_tree(number, state, merged)

    async def give_up(self, number: int, failure: f.Failure) -> None:
        """Eject members that can't be landed. After an internal error, eject only the first affected member."""
        batch = self.engine.state.landing.open_batch(number)
        if batch is None:
            return
        members = batch.members
        while failure.kind == "internal" and len(members) > 1:
            members = members[: len(members) // 2]
            try:
                await self._test(number, self.engine.state, members, alone=False)
            except Exception as error:  # noqa: BLE001 - it is tried with fewer members, and recorded with the last one
                failure = failure_of(error, "landed the finished work")
            else:
                return
        ejected = [f.Ejected(subtask=m.subtask, attempt=m.attempt, failure=failure) for m in members]
        await self._record(number, ejected=tuple(ejected))

    async def _record_what_landed_before_a_crash(self, number: int) -> bool:
        async with self._moving:
            state = self.engine.state
            landed = await self.integrator.landed_since(state.run, state.tip)
            if landed:
                last = _tested(landed[-1])
                await self._record(number, tip=last.commit, landed=(*landed[:-1], last))
        return bool(landed)

    async def _merge(self, tip: Sha, members: Sequence[f.Member]) -> Merged:
        landed, conflicts = list[f.Member](), list[tuple[f.Member, f.Failure]]()
        async with self._merging:
            for member in members:
                key = (tip, member.commit)
                if key not in self._merged:
                    self._merged[key] = await self.integrator.merge(tip, [member])
                merged = self._merged[key]
                tip = merged.tip
                landed += merged.landed
                conflicts += merged.conflicts
                if conflicts and self.engine.state.policy.in_order:  # those behind it wait for it
                    break
        return Merged(tip=tip, landed=tuple(landed), conflicts=tuple(conflicts))

    async def _test_last_tree(self, number: int, state: RunState, merged: Merged) -> None:
        """Test only the last tree, because the branch will point to that tree."""
        landed = merged.landed
        checks = await self._run_checks(number, state, landed)
        if red := self._red(checks):
            await self._suspect(number, red, landed)
        else:
            await self._land(number, state.tip, (*landed[:-1], _tested(landed[-1])), _ejected(merged), checks)

    async def _test_alone(self, number: int, state: RunState, merged: Merged) -> None:
        """Reach the final verdict on a suspect whose tree was red once. If it passes now, it may queue again."""
        [member] = merged.landed
        checks = await self._run_checks(number, state, [member], sure=True)
        red = self._red(checks)
        if red:
            spec, attempt = state.spec(member.subtask), state.subtasks[member.subtask].attempts[-1]
            if attempt.commit is not None:
                await self.checks.doubt(attempt.commit, attempt.checks, (*spec.acceptance, *self.checks.rules.criteria))
        await self._record(number, red=bool(red), checks=red or checks, guilty=member.subtask if red else None)

    async def _test_each_commit(self, number: int, state: RunState, merged: Merged) -> None:
        """Test the trees of all commits concurrently, and land the commits before the first failure.

        Each commit must pass the gate and its own criteria. The last commit that lands must pass the criteria of all.
        """
        landed = merged.landed
        results = await self._check_each(number, state, landed)
        reds = [self._red(checks) for checks in results]
        green = next((index for index, red in enumerate(reds) if red), len(landed))
        if green == 0:
            await self._suspect(number, reds[0], landed[:1])
            return
        last = results[-1] if green == len(landed) else await self._run_checks(number, state, landed[:green])
        if red := self._red(last):
            await self._suspect(number, red, landed[:green])
            return
        passed = tuple(map(_tested, landed[:green]))
        below = tuple(run for checks in results[: green - 1] for run in checks)
        if green == len(landed):
            await self._land(number, state.tip, passed, _ejected(merged), last, proofs=below)
        else:
            suspects, proofs = landed[green : green + 1], (*below, *last)
            await self._land(number, state.tip, passed, (), reds[green], suspects=suspects, proofs=proofs)

    async def _check_each(
        self, number: int, state: RunState, landed: Sequence[f.Member]
    ) -> list[tuple[f.CheckRun, ...]]:
        """Return the checks of each commit. The last commit also has the checks of all others."""
        some = CapacityLimiter(max(state.policy.slots, IN_A_ROW))  # while some run, others get ready

        async def check(members: Sequence[f.Member]) -> tuple[f.CheckRun, ...]:
            async with some:
                return await self._run_checks(number, state, members)

        return await run_side_by_side([*(partial(check, [member]) for member in landed[:-1]), partial(check, landed)])

    def _red(self, checks: Sequence[f.CheckRun]) -> tuple[f.CheckRun, ...]:
        """The checks that count against a merged tree. A check that was red on the base counts against no subtask."""
        before = {check.command for check in self.engine.state.red_base}
        return tuple(check for check in checks if not check.fine and check.command not in before)

    async def _land(
        self,
        number: int,
        base: Sha,
        landed: tuple[f.Member, ...],
        ejected: tuple[f.Ejected, ...],
        checks: tuple[f.CheckRun, ...],
        *,
        suspects: Sequence[f.Member] = (),
        proofs: Sequence[f.CheckRun] = (),
    ) -> None:
        trees = [await self.checks.tree(member.commit) for member in landed]
        landed = tuple(m.model_copy(update={"tree": tree}) for m, tree in zip(landed, trees, strict=True))
        async with self._moving:
            state = self.engine.state
            if state.landing.open_batch(number) is None:  # a longer one landed, or a shorter one turned out red
                return
            if state.tip not in {base, *(member.commit for member in landed)}:
                raise _infrastructure("the integration branch moved while a batch was tested")
            tip = landed[-1].commit
            if not await self.integrator.advance(state.run, new=tip, old=state.tip):
                raise _infrastructure("another process moved the integration branch")
            try:
                await self._record(
                    number,
                    tip=tip,
                    landed=tuple(member for member in landed if member.subtask in state.landing.queue),
                    ejected=ejected,
                    red=bool(suspects),
                    suspects=suspects,
                    checks=checks,
                    proofs=tuple(run.model_copy(update={"output": run.output[-OUTPUT_KEPT:]}) for run in proofs),
                )
            except Exception:  # an internal error: an effect that can't be recorded must be undone
                await self.integrator.advance(state.run, new=state.tip, old=tip)
                raise

    async def _suspect(self, number: int, red: tuple[f.CheckRun, ...], members: Sequence[f.Member]) -> None:
        """Send no member back yet, not even for a conflict: it may conflict only with the guilty one."""
        await self._record(number, red=True, suspects=members, checks=red)

    async def _record(
        self,
        number: int,
        *,
        tip: Sha | None = None,
        landed: tuple[f.Member, ...] = (),
        ejected: tuple[f.Ejected, ...] = (),
        red: bool = False,
        suspects: Sequence[f.Member] = (),
        checks: tuple[f.CheckRun, ...] = (),
        proofs: tuple[f.CheckRun, ...] = (),
        guilty: SubtaskId | None = None,
    ) -> None:
        """Record the result of a batch, unless another batch has answered it in the meantime.

        `tip` is the new commit of the branch. None means that the branch did not move.
        """

        def facts(state: RunState) -> Sequence[f.Fact]:
            if state.landing.open_batch(number) is None:
                return []
            ran = self._runs.get(number, Counter())
            result = f.BatchTested(
                at=self.clock.now(),
                number=number,
                tip=tip or state.tip,
                landed=landed,
                ejected=ejected,
                red=red,
                suspects=tuple(member.subtask for member in suspects),
                checks=checks,
                proofs=proofs,
                gate_runs=max((ran[criterion.run or ""] for criterion in self.checks.rules.criteria), default=0),
            )
            return [result] if guilty is None else [result, send_back(state, guilty, checks, result.at)]

        await self.engine.propose(facts)

    async def _run_checks(
        self, number: int, state: RunState, members: Sequence[f.Member], *, sure: bool = False
    ) -> tuple[f.CheckRun, ...]:
        """The gate and the criteria of every member, on the tree of the last of them.

        Red checks are repeated only for a suspect alone: before that, no red result is final.
        """
        criteria = [criterion for member in members for criterion in state.spec(member.subtask).acceptance]
        ran = self._runs.setdefault(number, Counter())
        return await self.checks.merged(members[-1].commit, criteria, sure=sure, ran=ran)


def _infrastructure(summary: str) -> EffectError:
    return EffectError(f.Failure(kind="infrastructure", summary=summary))


def _tested(member: f.Member) -> f.Member:
    return member.model_copy(update={"tested": True})


def _ejected(merged: Merged) -> tuple[f.Ejected, ...]:
    return tuple(
        f.Ejected(subtask=member.subtask, attempt=member.attempt, failure=failure)
        for member, failure in merged.conflicts
    )
