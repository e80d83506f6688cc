"""A worktree that is somebody's for a while: a desk to work at, checks to run, and a commit at the end."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fleet.core.facts import CheckRun, Failure
from fleet.core.ids import Sha
from fleet.core.plan import Criterion
from fleet.ports import Change, Signature, Tell, nobody
from worktrees.box import Place
from worktrees.change import Below
from worktrees.checks import Checker
from worktrees.commits import commit_overlay, commit_slot
from worktrees.desk import BoxDesk
from worktrees.handover import HandOver
from worktrees.mount import Overlay
from worktrees.settings import HandSettings
from worktrees.slot import Slot
from worktrees.store import Store


@dataclass(frozen=True, slots=True)
class SlotLease:
    """A slot at a base."""

    store: Store
    slot: Slot
    place: Place
    base: Sha
    desk: BoxDesk
    checker: Checker
    settings: HandSettings
    handed: HandOver | None
    """How it was handed over, where that is known."""
    most_files: int
    """How many files and folders it may hold, the repository's own and all that was set up included."""

    async def check(
        self, criteria: Iterable[Criterion], tell: Tell = nobody, *, believe_red: bool = False
    ) -> tuple[CheckRun, ...]:
        return await self.checker.run(self.place, self.base, criteria, tell, believe_red=believe_red)

    async def commit(self, signature: Signature, touches: Sequence[str]) -> Change | Failure:
        return await commit_slot(
            self.store,
            self.slot,
            self.base,
            self.handed,
            signature=signature,
            touches=touches,
            settings=self.settings,
            most_files=self.most_files,
        )


@dataclass(frozen=True, slots=True)
class OverlayLease:
    """A few folders above what others stand on, too."""

    store: Store
    place: Place
    overlay: Overlay
    below: Below
    desk: BoxDesk
    checker: Checker
    settings: HandSettings

    async def check(
        self, criteria: Iterable[Criterion], tell: Tell = nobody, *, believe_red: bool = False
    ) -> tuple[CheckRun, ...]:
        return await self.checker.run(self.place, self.below.commit, criteria, tell, believe_red=believe_red)

    async def commit(self, signature: Signature, touches: Sequence[str]) -> Change | Failure:
        return await commit_overlay(
            self.store, self.overlay, self.below, signature=signature, touches=touches, settings=self.settings
        )
