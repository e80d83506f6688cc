"""What two commits differ in, as text, from one long-lived `diff-tree`: every verified attempt is looked over.

A line that names no object is echoed, and so tells where an answer ends: no line of a patch reads like it. A patch that
is longer than wanted ends the program, and is left to a git of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from secrets import token_hex

from anyio import Lock, to_thread

from fleet.core.ids import Sha
from fleet.ports import Broken
from worktrees.git import Git, text
from worktrees.objects import Objects
from worktrees.service import Gone, Service

PATCH = ("diff-tree", "-p", "-r", "--no-renames", "--no-ext-diff", "--no-textconv")


@dataclass(slots=True, eq=False)
class _Wanted:
    """One patch; in the end it has a text, or is left to a git of its own."""

    old: Sha
    new: Sha
    cap: int
    found: bytes | None = None
    left: bool = False


class Patches:
    """The patches between commits of one repository."""

    def __init__(self, git: Git, objects: Objects) -> None:
        self._git = git
        self._objects = objects
        self._program = Service(git.git_dir, *PATCH, "--stdin")
        self._turn = Lock()
        self._wanted: list[_Wanted] = []
        self._end = f"end {token_hex(8)}".encode()

    def close(self) -> None:
        self._program.close()

    async def between(self, old: Sha, new: Sha, *, cap: int) -> str:
        """The patch, its middle left out where it is longer than `cap`. Raises `Broken`.

        Whoever has the program asks for all who wait: a thread that reads a little waits longer for its turn at the
        interpreter than for git.
        """
        mine = _Wanted(old, new, cap)
        self._wanted.append(mine)
        async with self._turn:
            if mine.found is None and not mine.left:
                asked, self._wanted = self._wanted, []
                await to_thread.run_sync(self._ask_all, asked)
        if mine.found is not None:
            return text(mine.found)
        return text(await self._git(*PATCH, old, new, cap=cap))

    def _ask_all(self, asked: Sequence[_Wanted]) -> None:
        for each in asked:
            try:
                each.found = self._ask(each)
            except (Gone, Broken):
                each.left = True

    def _ask(self, wanted: _Wanted) -> bytes:
        trees = [self._objects.commit(commit).tree for commit in (wanted.old, wanted.new)]
        lines, size = list[bytes](), 0
        with self._program.conversation() as program:
            program.send(" ".join(trees).encode() + b"\n" + self._end + b"\n")
            program.line()  # names the trees
            while (line := program.line()) != self._end:
                size += len(line) + 1
                if size > wanted.cap:
                    raise Gone("longer than wanted")
                lines.append(line)
        return b"".join(line + b"\n" for line in lines)
