"""What two commits differ in, as text, from one long-lived `diff-tree`: every verified attempt is looked over.

A line that names no object is echoed, and so tells where an answer ends: no line of a patch reads like it. A patch that
is longer than wanted ends the program, and is left to a git of its own.
"""

from secrets import token_hex

from anyio import CapacityLimiter, to_thread

from fleet.core.ids import Sha
from worktrees.git import Git, text
from worktrees.objects import Objects
from worktrees.service import Gone, Service

PATCH = ("diff-tree", "-p", "-r", "--no-renames", "--no-ext-diff", "--no-textconv")


class Patches:
    """The patches between commits of one repository."""

    def __init__(self, git: Git, objects: Objects) -> None:
        self._git = git
        self._objects = objects
        self._program = Service(git.git_dir, *PATCH, "--stdin")
        self._threads = CapacityLimiter(1)
        self._end = f"end {token_hex(8)}".encode()

    def close(self) -> None:
        self._program.close()

    async def between(self, old: Sha, new: Sha, *, cap: int) -> str:
        """The patch, its middle left out where it is longer than `cap`. Raises `Broken`."""
        try:
            return text(await to_thread.run_sync(self._ask, old, new, cap, limiter=self._threads))
        except Gone:
            return text(await self._git(*PATCH, old, new, cap=cap))

    def _ask(self, old: Sha, new: Sha, cap: int) -> bytes:
        trees = [self._objects.commit(commit).tree for commit in (old, new)]
        lines, size = list[bytes](), 0
        with self._program.conversation() as program:
            program.send(" ".join(trees).encode() + b"\n" + self._end + b"\n")
            program.line()  # names the trees
            while (line := program.line()) != self._end:
                size += len(line) + 1
                if size > cap:
                    raise Gone("longer than wanted")
                lines.append(line)
        return b"".join(line + b"\n" for line in lines)
