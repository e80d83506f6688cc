"""A worker's access to its worktree: commands and files, all inside the box, so links can't lead the manager outside.

Each file read or write is a small script in a new box: it can access only paths that the worker can access anyway.
"""

import os
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

from anyio import CapacityLimiter

from fleet.ports.agents import NO_EXTRAS, CommandResult, Dialogue, Extras, WorkspaceError
from worktrees.sandbox.box import Box, Place

MAX_READ = 4 * 1024 * 1024
MAX_WRITE = 16 * 1024 * 1024
MAX_NAMES = 2_000
LIST_CAP = 1024 * 1024
FILE_S = 30.0  # time limit for reading or writing one file

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
class BoxWorkspace:
    """Implements `Workspace`. Closed when the lease is released: a late call must not reach the next tenant."""

    box: Box
    place: Place
    limiter: CapacityLimiter
    closed: bool = False

    @property
    def root(self) -> str:
        return self.box.root(self.place)

    async def run(
        self, command: str, *, timeout_s: float, extras: Extras = NO_EXTRAS, dialogue: Dialogue | None = None
    ) -> CommandResult:
        if "\0" in command:
            raise WorkspaceError("a command can't contain a NUL character")
        self._check_open()
        settings, box = self.box.settings, self.box.extended(extras)
        async with self.limiter:
            shell, cap = box.shell(command), settings.output_bytes
            done = await box.run(self.place, shell, timeout_s=timeout_s, cap=cap, dialogue=dialogue)
        if settings.on_command is not None:
            settings.on_command(done.seconds)
        return CommandResult(done.shell_code, done.text, timed_out=done.timed_out, seconds=done.seconds)

    async def read(self, path: str) -> bytes:
        content = await self._run_script(READ, path, str(MAX_READ + 1), cap=MAX_READ + 2)
        if len(content) > MAX_READ:
            raise WorkspaceError(f"{path} is larger than {MAX_READ} bytes. Use a command to read parts of it")
        return content

    async def write(self, path: str, data: bytes) -> None:
        if len(data) > MAX_WRITE:
            raise WorkspaceError(f"{path}: content has {len(data)} bytes, and the limit for one write is {MAX_WRITE}")
        await self._run_script(WRITE, path, data=data, cap=4096)

    async def list(self, path: str) -> Sequence[str]:
        listed = await self._run_script(LIST, path, cap=LIST_CAP)
        names = sorted(name.decode("utf-8", "replace") for name in listed.split(b"\0") if name)
        return names[:MAX_NAMES]

    async def _run_script(self, script: str, path: str, *more: str, cap: int, data: bytes = b"") -> bytes:
        self._check_open()
        argv = ("sh", "-c", script, "sh", self._absolute(path), *more)
        async with self.limiter:
            done = await self.box.run(self.place, argv, timeout_s=FILE_S, data=data, merged=False, cap=cap)
        if done.timed_out:
            raise WorkspaceError(f"{path}: took longer than {FILE_S:g} s")
        if done.exit_code != 0:
            complaint = done.stderr.decode("utf-8", "replace").strip()[-500:]
            raise WorkspaceError(f"{path}: {complaint or f'failed with exit code {done.exit_code}'}")
        return done.stdout

    def _absolute(self, path: str) -> str:
        """Return the absolute path of a file in this worktree, as the box sees it."""
        if not path or "\0" in path:
            raise WorkspaceError("the path is empty or contains a NUL character")
        absolute = posixpath.normpath(posixpath.join(self.root, path))
        if absolute != self.root and not absolute.startswith(f"{self.root}/"):
            raise WorkspaceError(f"{path} is outside {self.root}")
        if self.box.settings.box.sandbox == "none" and not self._stays_inside(absolute):
            raise WorkspaceError(f"{path} leads outside {self.root}")
        return absolute

    def _stays_inside(self, absolute: str) -> bool:
        """Without a box, only this check stops a link that leads outside."""
        top = os.path.realpath(self.place.tree)
        return os.path.commonpath((top, os.path.realpath(absolute))) == top

    def close(self) -> None:
        self.closed = True

    def _check_open(self) -> None:
        if self.closed:
            raise WorkspaceError("this worktree was released")
