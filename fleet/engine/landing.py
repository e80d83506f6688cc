"""Landing: a probe merges a prefix of the queue onto the tip and tests the merged tree; a green one moves the branch.

The branch moves only by compare-and-swap, only to a tree that passed, and one result at a time. A crash between moving
it and recording that is mended by reading the branch: commits say whose work they are.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from anyio import CapacityLimiter, Lock, create_task_group

from fleet.checking import Checks
from fleet.core import facts as f
from fleet.core.blame import sent_back
from fleet.core.landing import every_tree
from fleet.core.plan import Criterion
from fleet.core.state import RunState
from fleet.meter import Record
from fleet.ports import Broken, Clock, Integrator, Merged
from fleet.together import SIDE_BY_SIDE

KEPT = 1_000  # characters of what a check of a green tree printed; its log holds the rest


@dataclass(slots=True)
class Lander:
    """Carries out the probes of one run."""

    engine: Record
    integrator: Integrator
    checks: Checks
    clock: Clock
    _moving: Lock = field(default_factory=Lock)
    _merging: Lock = field(default_factory=Lock)
    _merged: dict[tuple[str, str], Merged] = field(default_factory=dict)
    """What a commit became on a parent: a longer probe stands on the very commits of a shorter one."""
    _ran: dict[int, Counter[str]] = field(default_factory=dict)
    """How often each command was run for a probe."""

    async def probe(self, number: int) -> None:
        """Test one prefix of the queue, and land it if it is green."""
        if await self._landed_before_a_crash(number):
            return
        state = self.engine.state
        probe = state.landing.probe(number)
        if probe is None:
            return
        merged = await self._merge(state.tip, probe.members)
        if not merged.landed:
            await self._record(f.BatchTested(at=0.0, number=number, tip=state.tip, ejected=_ejected(merged)))
        elif probe.alone:
            await self._alone(number, state, merged)
        elif every_tree(state, [member.subtask for member in probe.members]):
            await self._each(number, state, merged)
        else:
            await self._whole(number, state, merged)

    async def give_up(self, number: int, failure: f.Failure) -> None:
        """The probe itself can't be carried out: its members go back."""

        def facts(state: RunState) -> Sequence[f.Fact]:
            probe = state.landing.probe(number)
            members = probe.members if probe is not None else ()
            ejected = tuple(f.Ejected(subtask=m.subtask, attempt=m.attempt, failure=failure) for m in members)
            gone = f.BatchTested(at=self.clock.now(), number=number, tip=state.tip, ejected=ejected)
            return [gone] if probe is not None else []

        await self.engine.propose(facts)

    async def _landed_before_a_crash(self, number: int) -> bool:
        async with self._moving:
            state = self.engine.state
            landed = await self.integrator.landed_since(state.run, state.tip)
            if landed:
                tip = await self.integrator.tip(state.run)
                landed = (*landed[:-1], landed[-1].model_copy(update={"tested": True}))
                await self._record(f.BatchTested(at=0.0, number=number, tip=tip, landed=landed))
        return bool(landed)

    async def _merge(self, tip: str, members: Sequence[f.Member]) -> Merged:
        now, landed, conflicts = tip, list[f.Member](), list[tuple[f.Member, f.Failure]]()
        async with self._merging:
            for member in members:
                key = (now, member.commit)
                if key not in self._merged:
                    self._merged[key] = await self.integrator.merge(now, [member])
                one = self._merged[key]
                now = one.tip
                landed += one.landed
                conflicts += one.conflicts
        return Merged(tip=now, landed=tuple(landed), conflicts=tuple(conflicts))

    async def _whole(self, number: int, state: RunState, merged: Merged) -> None:
        """One test for all: of the last tree, the only one the branch will ever stand at."""
        checks = await self._test(number, state, merged.landed)
        if failed := self._red_ones(checks):
            await self._red(number, failed, merged.landed)
            return
        last = merged.landed[-1].model_copy(update={"tested": True})
        await self._land(number, state.tip, (*merged.landed[:-1], last), _ejected(merged), checks)

    async def _alone(self, number: int, state: RunState, merged: Merged) -> None:
        """The last word on a suspect. Its tree was red once; if it passes now, it may wait for its turn again."""
        checks = await self._test(number, state, merged.landed, sure=True)
        failed = self._red_ones(checks)
        [member] = merged.landed

        def facts(state: RunState) -> Sequence[f.Fact]:
            if state.landing.probe(number) is None:
                return []
            now = self.clock.now()
            result = f.BatchTested(
                at=now,
                number=number,
                tip=state.tip,
                red=bool(failed),
                checks=failed or checks,
                gate_runs=self._gate_runs(number),
            )
            return [sent_back(state, member.subtask, failed, now), result] if failed else [result]

        await self.engine.propose(facts)

    async def _each(self, number: int, state: RunState, merged: Merged) -> None:
        """Every commit's own tree, side by side: what stands below the first red one lands.

        A commit has to pass the gate and its own criteria; where the branch stops, those of all that land with it, too.
        """
        landed = merged.landed
        results = await self._side_by_side(number, state, landed)
        failed = [self._red_ones(checks) for checks in results]
        green = next((index for index, checks in enumerate(failed) if checks), len(failed))
        if green == 0:
            await self._red(number, failed[0], landed[:1])
            return
        whole = results[-1] if green == len(landed) else await self._test(number, state, landed[:green])
        if red := self._red_ones(whole):
            await self._red(number, red, landed[:green])
            return
        passed = tuple(member.model_copy(update={"tested": True}) for member in landed[:green])
        below = tuple(run for checks in results[: green - 1] for run in checks)
        if green == len(landed):
            await self._land(number, state.tip, passed, _ejected(merged), whole, proofs=below)
        else:
            suspects, proofs = landed[green : green + 1], (*below, *whole)
            await self._land(number, state.tip, passed, (), failed[green], suspects=suspects, proofs=proofs)

    async def _side_by_side(
        self, number: int, state: RunState, landed: Sequence[f.Member]
    ) -> list[tuple[f.CheckRun, ...]]:
        """The checks of each commit by itself; of the last one, of all that land with it."""
        results: dict[int, tuple[f.CheckRun, ...]] = {}
        turns = CapacityLimiter(state.policy.slots if self.checks.rules.criteria else SIDE_BY_SIDE)
        last = len(landed) - 1

        async def test(index: int) -> None:
            async with turns:
                results[index] = await self._test(
                    number, state, landed[: index + 1] if index == last else [landed[index]]
                )

        async with create_task_group() as sides:
            for index in range(len(landed)):
                sides.start_soon(test, index)
        return [results[index] for index in range(len(landed))]

    def _red_ones(self, checks: Sequence[f.CheckRun]) -> tuple[f.CheckRun, ...]:
        """What stands against a merged tree. What was red on the base already stands against nobody."""
        before = {check.command for check in self.engine.state.red_base}
        return tuple(check for check in checks if not check.fine and check.command not in before)

    async def _land(
        self,
        number: int,
        base: str,
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
            if state.landing.probe(number) is None:  # a longer one landed, or a shorter one turned out red
                return
            if state.tip not in {base, *(member.commit for member in landed)}:
                raise Broken(f.Failure(kind="infrastructure", summary="the tip moved aside while a probe was tested"))
            new = [member for member in landed if member.subtask in state.landing.queue]
            if not await self.integrator.advance(state.run, new=landed[-1].commit, old=state.tip):
                raise Broken(f.Failure(kind="infrastructure", summary="the integration branch moved without us"))
            await self._record(
                f.BatchTested(
                    at=0.0,
                    number=number,
                    tip=landed[-1].commit,
                    landed=tuple(new),
                    ejected=ejected,
                    red=bool(suspects),
                    suspects=tuple(member.subtask for member in suspects),
                    checks=checks,
                    proofs=tuple(run.model_copy(update={"output": run.output[-KEPT:]}) for run in proofs),
                )
            )

    async def _red(self, number: int, failed: tuple[f.CheckRun, ...], members: Sequence[f.Member]) -> None:
        """Nobody is sent back yet, not even for a conflict: it may be one with the guilty."""
        suspects = tuple(member.subtask for member in members)
        await self._record(f.BatchTested(at=0.0, number=number, tip="", red=True, suspects=suspects, checks=failed))

    async def _record(self, result: f.BatchTested) -> None:
        """What came of a probe, unless another one has answered it in the meantime."""

        def facts(state: RunState) -> Sequence[f.Fact]:
            if state.landing.probe(result.number) is None:
                return []
            now = {"at": self.clock.now(), "gate_runs": self._gate_runs(result.number)}
            return [result.model_copy(update=now if result.landed else {**now, "tip": state.tip})]

        await self.engine.propose(facts)

    def _gate_runs(self, number: int) -> int:
        ran = self._ran.get(number, Counter())
        return max((ran[criterion.run or ""] for criterion in self.checks.rules.criteria), default=0)

    async def _test(
        self, number: int, state: RunState, members: Sequence[f.Member], *, sure: bool = False
    ) -> tuple[f.CheckRun, ...]:
        """The gate and the criteria of every member on the tree of the last of them.

        What is red is run again only for a suspect alone: before that it decides nothing that can't be mended.
        """
        own: list[Criterion] = [c for member in members for c in state.spec(member.subtask).acceptance]
        ran = self._ran.setdefault(number, Counter())
        return await self.checks.merged(members[-1].commit, own, sure=sure, ran=ran)


def _ejected(merged: Merged) -> tuple[f.Ejected, ...]:
    return tuple(
        f.Ejected(subtask=member.subtask, attempt=member.attempt, failure=failure)
        for member, failure in merged.conflicts
    )
