"""The manager's side of `forker.py`: boxes started by a small process that stands ready, not by four programs each.

It only saves time. Where there is none, or it is gone, commands start as they do without it.
"""

import json
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from anyio import CancelScope, Lock, move_on_after, wait_readable

from worktrees import forker
from worktrees.marks import MARK, Manager
from worktrees.mount import VIEW
from worktrees.process import Launch, memory_file

Step = tuple[object, ...]
"""What to do, and with what; `forker.py` knows how."""
ANSWER_S = 30.0  # how long a fork may take, on a machine that is starved


@dataclass(slots=True)
class Fork:
    """A child of ours that another process made."""

    pid: int
    returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


@dataclass(slots=True)
class Forks:
    """Satisfies `Starter`. The process is there from the first command on."""

    manager: Manager
    _process: subprocess.Popen[bytes] | None = None
    _control: socket.socket | None = None
    _turn: Lock = field(default_factory=Lock)
    _given_up: bool = platform.machine() not in forker.CLONE

    async def start(self, launch: Launch, streams: tuple[int, int, int]) -> Fork | None:
        """Start a command; None where that takes the other way."""
        numbers = (0, 1, 2, *launch.pass_fds)
        order = {
            "argv": list(launch.argv),
            "env": dict(launch.env),
            "cwd": str(launch.cwd or "/"),
            "overlay": launch.overlay,
            "view": VIEW,
            "fds": numbers,
        }
        pid = await self._carried_out(forker.START, order, (*streams, *launch.pass_fds))
        return None if pid is None or pid <= 0 else Fork(pid)

    async def arrange(self, cwd: Path, *steps: Step) -> bool:
        """Whether things could be mounted, or taken away, where boxes that stand already see it."""
        return await self._carried_out(forker.ARRANGE, {"cwd": str(cwd), "steps": steps}) == 0

    async def _carried_out(self, kind: bytes, order: Mapping[str, object], fds: tuple[int, ...] = ()) -> int | None:
        """What came of an order. Not to be left before the answer is here: nobody would wait for the fork."""
        answer: int | None = None
        async with self._turn:
            if self._given_up:
                return None
            with CancelScope(shield=True), memory_file(json.dumps(order).encode()) as written:
                answer = await self._ask(kind, (written, *fds))
            if answer is None or (kind == forker.START and answer <= 0):  # a late answer would be taken for the next
                self.close()
                self._given_up = True
        return answer

    async def _ask(self, kind: bytes, fds: tuple[int, ...]) -> int | None:
        try:
            control = self._control or self._begin()
            socket.send_fds(control, [kind], fds)
            with move_on_after(ANSWER_S):
                await wait_readable(control)
                return int(control.recv(32) or b"-1")
        except OSError:
            pass
        return None

    def _begin(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = ours
        program = (sys.executable, "-I", "-S", "-X", "utf8", str(Path(forker.__file__)), str(theirs.fileno()))
        env = {"PATH": os.environ.get("PATH", os.defpath), MARK: self.manager.mark("forker")}
        with theirs:
            self._process = subprocess.Popen(
                program,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=env,
                cwd="/",
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        return ours

    def close(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def forks(manager: Manager) -> Iterator[Forks]:
    """For as long as the block lasts."""
    there = Forks(manager)
    try:
        yield there
    finally:
        there.close()
