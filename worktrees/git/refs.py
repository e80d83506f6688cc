"""Refs of the store, moved through one long-lived `update-ref`: a tenth of a millisecond instead of a spawn.

Every move of a branch is a compare-and-swap. The program ends at the first refusal, and then nobody knows whether the
last word arrived: the ref itself is asked, and a spawned git has the last say.
"""

import re
from collections.abc import Callable
from functools import partial

from anyio import CapacityLimiter, to_thread

from fleet.core.facts import Failure
from fleet.core.ids import Sha
from fleet.points import reached
from fleet.ports import Broken
from worktrees.git import Git, text
from worktrees.service import Gone, Service

REF = re.compile(r"refs/[^\s:^~?*\[\\\x00-\x1f\x7f]+")
ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class Refs:
    """The refs of one repository."""

    def __init__(self, git: Git) -> None:
        self._git = git
        self._program = Service(git.git_dir, "update-ref", "--stdin")
        self._threads = CapacityLimiter(1)

    def close(self) -> None:
        self._program.close()

    async def pin(self, ref: str, commit: Sha) -> None:
        """Make a ref name a commit, whatever it named before."""
        reached("a commit is about to be pinned")
        if not await self._run(partial(self._update, ref, commit, None)):
            await self._git("update-ref", ref, commit)
        reached("a commit is pinned")

    async def swap(self, ref: str, *, new: Sha, old: Sha) -> bool:
        """Compare-and-swap; False when the ref is not where we thought."""
        reached("a branch is about to move")
        moved = await self._run(partial(self._update, ref, new, old))
        reached("a branch was moved")
        return moved or await self._git.sha(ref) == new or await swap(self._git, ref, new=new, old=old)

    async def _run(self, work: Callable[[], bool]) -> bool:
        return await to_thread.run_sync(work, limiter=self._threads)

    def _update(self, ref: str, new: Sha, old: Sha | None) -> bool:
        """Whether git said that it is done."""
        if REF.fullmatch(ref) is None or not all(ID.fullmatch(id_) for id_ in (new, old) if id_ is not None):
            raise ValueError(f"can't move {ref!r} from {old!r} to {new!r}")
        words = " ".join(word for word in ("update", ref, new, old) if word is not None)
        try:
            with self._program.conversation() as program:
                program.send(f"start\n{words}\nprepare\ncommit\n".encode())
                answers = [program.line() for _ in ("start", "prepare", "commit")]
        except Gone:
            return False
        return answers == [b"start: ok", b"prepare: ok", b"commit: ok"]


async def swap(git: Git, ref: str, *, new: Sha, old: Sha, why: str = "fleet") -> bool:
    """Compare-and-swap of a ref by a git of its own; False when it is not where we thought."""
    answer = await git.ask("update-ref", "-m", why, ref, new, old)
    if answer.exit_code == 0:
        return True
    if await git.sha(ref) != old:
        return False
    raise Broken(Failure(kind="infrastructure", summary=f"{ref} can't be moved", evidence=text(answer.stderr)))
