"""A node whose disk is full blames no work: what failed meanwhile is done elsewhere, and uses up no attempt."""

import os
from dataclasses import dataclass
from pathlib import Path

from fleet.core.state.facts import CheckRun, Failure
from fleet.nodes.calling.line import Line
from fleet.nodes.host import Workshop
from fleet.ports.nodes import AttemptOrder, AttemptResult, ChecksOrder, Tell
from fleet.ports.worktrees import EffectError
from worktrees.sandbox.resource_monitor import least_free

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class OwnDisk:
    """Satisfies `Workshop` with another one. Raises `EffectError` for what failed while the disk was full."""

    workshop: Workshop
    folder: Path
    free_bytes: int
    """What has to be free."""

    async def attempt(self, order: AttemptOrder, line: Line, tell: Tell) -> AttemptResult:
        result = await self.workshop.attempt(order, line, tell)
        if not result.finished or isinstance(result.committed, Failure):
            self._require_room()
        return result

    async def check(self, order: ChecksOrder) -> tuple[CheckRun, ...]:
        runs = await self.workshop.check(order)
        if not all(run.fine for run in runs):
            self._require_room()
        return runs

    def _require_room(self) -> None:
        try:
            status = os.statvfs(self.folder)
        except OSError as error:
            raise EffectError(Failure(kind="infrastructure", summary=f"its disk can't be used: {error}")) from error
        free, least = status.f_bavail * status.f_frsize, least_free(status, self.free_bytes)
        if free < least:
            why = f"its disk is full: {free // MIB} MiB are left, and {least // MIB} are needed"
            raise EffectError(Failure(kind="infrastructure", summary=why))
