"""A worker's hands. Every one of them works inside the box, so a link that the worker made leads the manager nowhere.

Reading and writing a file is a small script in a fresh box: what it can reach is what the worker could reach anyway.
"""

import os
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

from anyio import CapacityLimiter

from fleet.ports import NO_EXTRAS, CommandResult, DeskError, Extras
from worktrees.box import Box, Place
from worktrees.process import Finished
from worktrees.settings import HandSettings

TIMED_OUT = 124  # what timeout(1) answers, too
MAX_READ = 4 * 1024 * 1024
MAX_WRITE = 16 * 1024 * 1024
MAX_NAMES = 2_000
LIST_CAP = 1024 * 1024

READ = """\
if [ -d "$1" ]; then echo "is a folder" >&2; exit 3; fi
if [ ! -e "$1" ]; then echo "does not exist" >&2; exit 3; fi
if [ ! -f "$1" ]; then echo "is not a regular file" >&2; exit 3; fi
exec head -c "$2" -- "$1"
"""
WRITE = """\
if [ -d "$1" ]; then echo "is a folder" >&2; exit 3; fi
if [ -e "$1" ] && [ ! -f "$1" ]; then echo "is not a regular file" >&2; exit 3; fi
mkdir -p -- "$(dirname -- "$1")" && cat > "$1"
"""
LIST = """\
if [ ! -d "$1" ]; then echo "is not a folder" >&2; exit 3; fi
exec find "$1/" -mindepth 1 -maxdepth 2 \
  \\( -name .git -o -path '*/node_modules/*' -o -path '*/__pycache__/*' \\) -prune -o \
  \\( -type d -printf '%P/\\0' -o -printf '%P\\0' \\)
"""


@dataclass(slots=True)
class BoxDesk:
    """A worktree's desk. Closed when the lease is given back: a late call must not reach the next tenant."""

    box: Box
    place: Place
    settings: HandSettings
    turns: CapacityLimiter
    closed: bool = False

    @property
    def root(self) -> str:
        return self.box.root(self.place)

    async def run(self, command: str, *, timeout_s: float, extras: Extras = NO_EXTRAS) -> CommandResult:
        if "\0" in command:
            raise DeskError("a command can't hold a NUL character")
        self._check_open()
        async with self.turns:
            done = await self.box.with_(extras).run(
                self.place, self.box.shell(command), timeout_s=timeout_s, cap=self.settings.output_bytes
            )
        if self.settings.on_command is not None:
            self.settings.on_command(done.seconds)
        return CommandResult(
            exit_code=exit_code(done),
            output=done.stdout.decode("utf-8", "replace"),
            timed_out=done.timed_out,
            seconds=done.seconds,
        )

    async def read(self, path: str) -> bytes:
        content = await self._script(READ, path, str(MAX_READ + 1), cap=MAX_READ + 2)
        if len(content) > MAX_READ:
            raise DeskError(f"{path} is larger than {MAX_READ} bytes; read parts of it with a command")
        return content

    async def write(self, path: str, data: bytes) -> None:
        if len(data) > MAX_WRITE:
            raise DeskError(f"{path} would have {len(data)} bytes; at most {MAX_WRITE} can be written at once")
        await self._script(WRITE, path, data=data, cap=4096)

    async def list(self, path: str) -> Sequence[str]:
        raw = await self._script(LIST, path, cap=LIST_CAP)
        names = sorted(name.decode("utf-8", "replace") for name in raw.split(b"\0") if name)
        return names[:MAX_NAMES]

    async def _script(self, script: str, path: str, *more: str, cap: int, data: bytes = b"") -> bytes:
        self._check_open()
        inside = self._inside(path)
        argv = ("sh", "-c", script, "sh", inside, *more)
        async with self.turns:
            done = await self.box.run(
                self.place, argv, timeout_s=self.settings.file_s, data=data, merged=False, cap=cap
            )
        if done.timed_out:
            raise DeskError(f"{path}: took longer than {self.settings.file_s:g} s")
        if done.exit_code != 0:
            said = done.stderr.decode("utf-8", "replace").strip()[-500:]
            raise DeskError(f"{path}: {said or f'failed with exit code {done.exit_code}'}")
        return done.stdout

    def _inside(self, path: str) -> str:
        """The absolute path of a file at this desk, as the box sees it."""
        if not path or "\0" in path:
            raise DeskError("the path is empty or holds a NUL character")
        whole = posixpath.normpath(posixpath.join(self.root, path))
        if whole != self.root and not whole.startswith(f"{self.root}/"):
            raise DeskError(f"{path} is outside {self.root}")
        if self.settings.sandbox == "none" and not self._stays_inside(whole):
            raise DeskError(f"{path} leads outside {self.root}")
        return whole

    def _stays_inside(self, whole: str) -> bool:
        """Without a box nothing else keeps a link from leading out."""
        top = os.path.realpath(self.place.tree)
        return os.path.commonpath((top, os.path.realpath(whole))) == top

    def _check_open(self) -> None:
        if self.closed:
            raise DeskError("this worktree was given back")


def exit_code(done: Finished) -> int:
    """As a shell counts: 124 for out of time, 128 and the signal for killed."""
    if done.timed_out:
        return TIMED_OUT
    return done.exit_code if done.exit_code >= 0 else 128 - done.exit_code
