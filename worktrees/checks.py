"""Runs acceptance checks in a box at a worktree. Waiting for a turn never counts as a check's time."""

from collections.abc import Sequence
from dataclasses import dataclass

from anyio import CapacityLimiter

from fleet.core.facts import CheckRun
from fleet.core.plan import Criterion
from worktrees.box import Box, Place
from worktrees.desk import exit_code

TAIL = 4_000  # characters kept of a check's output
CAP = 64 * 1024


@dataclass(frozen=True, slots=True)
class Checker:
    """Checks are bound by the processor, so they have turns of their own, apart from the workers' commands."""

    box: Box
    turns: CapacityLimiter

    async def run(self, place: Place, criteria: Sequence[Criterion]) -> tuple[CheckRun, ...]:
        """One after another: they share a worktree. Raises `Broken` where there is no box."""
        return tuple([await self._one(place, criterion) for criterion in criteria])

    async def _one(self, place: Place, criterion: Criterion) -> CheckRun:
        if criterion.run is None:
            why = "has no command; a named check must be filled in from the configuration first"
            return CheckRun(criterion=criterion.criterion, command="", passed=False, output=why)
        async with self.turns:
            done = await self.box.run(place, self.box.shell(criterion.run), timeout_s=criterion.timeout_s, cap=CAP)
        return CheckRun(
            criterion=criterion.criterion,
            command=criterion.run,
            passed=done.exit_code == 0 and not done.timed_out,
            exit_code=exit_code(done),
            timed_out=done.timed_out,
            seconds=round(done.seconds, 3),
            output=done.stdout.decode("utf-8", "replace")[-TAIL:],
        )
