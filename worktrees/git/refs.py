"""Refs of the store, moved through one long-lived `update-ref`: a tenth of a millisecond instead of a spawn.

Every move of a branch is a compare-and-swap. The program ends at the first refusal, and then it is unclear whether the
last command arrived: the ref itself is asked, and a spawned git decides.
"""

import re
from contextlib import suppress
from functools import partial

from anyio import CapacityLimiter, to_thread

from fleet.core.base.ids import Sha
from fleet.ports.worktrees import EffectError
from fleet.runs.crash_points import reached
from worktrees.base.errors import effect_error
from worktrees.git.object_format import ID, REF
from worktrees.git.program import PATIENCE, Coprocess, CoprocessError, Git, Patience, text

LOOSE = 200
"""Refs that are set until all are packed into one file: each takes a file and a folder, and whatever lists refs reads
them one by one."""


class Refs:
    """The refs of one repository."""

    def __init__(self, git: Git, *, loose: int = LOOSE, patience: Patience = PATIENCE) -> None:
        self._set, self._loose = 0, loose
        self._git = git
        self._program = Coprocess(git.git_dir, "update-ref", "--stdin", patience=patience)
        self._threads = CapacityLimiter(1)

    def close(self) -> None:
        self._program.close()

    async def pin(self, ref: str, commit: Sha) -> None:
        """Make a ref name a commit, whatever it named before."""
        reached("a commit is about to be pinned")
        if not await self._update(ref, commit):
            await self._git("update-ref", ref, commit)
        reached("a commit is pinned")
        self._set += 1
        if self._set % self._loose == 0:
            await self._pack()

    async def _pack(self) -> None:
        """Pack all refs. Where git can't, because another one does, they stay as they are."""
        reached("refs are about to be packed")
        with suppress(EffectError):
            await self._git.ask("pack-refs", "--all")
        reached("refs are packed")

    async def swap(self, ref: str, *, new: Sha, old: Sha) -> bool:
        """Compare-and-swap; False when the ref is not at `old`."""
        reached("a branch is about to move")
        moved = await self._update(ref, new, old)
        reached("a branch was moved")
        return moved or await self._git.sha(ref) == new or await swap(self._git, ref, new=new, old=old)

    async def _update(self, ref: str, *ids: Sha) -> bool:
        """Whether git confirmed the update. The ids are the new one and, for a compare-and-swap, the old one."""
        if re.fullmatch(REF, ref) is None or not all(re.fullmatch(ID, id_) for id_ in ids):
            raise ValueError(f"can't move {ref!r} to {' from '.join(map(repr, ids))}")
        command = f"start\nupdate {ref} {' '.join(ids)}\nprepare\ncommit\n"
        return await to_thread.run_sync(partial(self._confirmed, command.encode()), limiter=self._threads)

    def _confirmed(self, command: bytes) -> bool:
        try:
            with self._program.conversation() as program:
                program.send(command)
                return [program.read_line() for _ in range(3)] == [b"start: ok", b"prepare: ok", b"commit: ok"]
        except CoprocessError:
            return False


async def swap(git: Git, ref: str, *, new: Sha, old: Sha, reason: str = "fleet") -> bool:
    """Compare-and-swap of a ref by a spawned git; False when it is not at `old`."""
    answer = await git.ask("update-ref", "-m", reason, ref, new, old)
    if answer.exit_code == 0:
        return True
    if await git.sha(ref) != old:
        return False
    raise effect_error(f"{ref} can't be moved", text(answer.stderr))
