"""The manager's side of `launcher_main.py`: one small process that starts boxes, instead of four programs for each.

It only saves time. If it can't run, or has exited, commands start without it.
"""

import json
import os
import platform
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from anyio import CancelScope, Lock, move_on_after, wait_readable, wait_writable

from worktrees.base.process import Launch, memory_file
from worktrees.sandbox import launcher_main
from worktrees.sandbox.overlay_mount import TAG, VIEW, this_manager

ANSWER_S = 10.0  # how long a fork may take on a busy machine
STARTS = 3  # of the process; after that, commands start without it
END_S = 2.0  # for the killed process to exit


@dataclass(slots=True)
class ForkedChild:
    """A child of ours that another process forked."""

    pid: int
    returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


@dataclass(slots=True)
class Launcher:
    """Implements `Starter`. Its process starts with the first command and ends at `close`."""

    answer_s: float = ANSWER_S
    _process: subprocess.Popen[bytes] | None = None
    _control: socket.socket | None = None
    _lock: Lock = field(default_factory=Lock)
    _starts_left: int = STARTS if platform.machine() in launcher_main.CLONE else 0

    async def start(self, launch: Launch, streams: tuple[int, int, int]) -> ForkedChild | None:
        """Start a command, or return None if it must be started without the launcher."""
        order = {
            "argv": list(launch.argv),
            "env": dict(launch.env),
            "cwd": str(launch.cwd or "/"),
            "overlay": launch.overlay,
            "view": VIEW,
            "fds": (0, 1, 2, *launch.pass_fds),
        }
        async with self._lock:
            if self._control is None and not self._starts_left:
                return None
            # Always wait for the answer: a fork with an unknown process id would never be reaped.
            with CancelScope(shield=True), memory_file(json.dumps(order).encode()) as order_fd:
                pid = await self._request_fork((order_fd, *streams, *launch.pass_fds))
            if pid is None or pid <= 0:  # a late answer would be mistaken for the next
                self.close()  # the next command starts another one
                return None
        return ForkedChild(pid)

    async def _request_fork(self, fds: tuple[int, ...]) -> int | None:
        with suppress(OSError):
            control = self._control or self._start_process()
            with move_on_after(self.answer_s):
                await wait_writable(control)
                socket.send_fds(control, [b"!"], fds)
                await wait_readable(control)
                return int(control.recv(32) or b"-1")
        return None

    def _start_process(self) -> socket.socket:
        self._starts_left -= 1
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        program = (sys.executable, "-I", "-S", "-X", "utf8", str(Path(launcher_main.__file__)), str(theirs.fileno()))
        with theirs:
            self._process = subprocess.Popen(
                program,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"PATH": os.environ.get("PATH", os.defpath), TAG: this_manager().tag("launcher")},
                cwd="/",
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        return self._control

    def close(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(END_S)
            self._process = None
