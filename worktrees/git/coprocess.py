"""A git program that stays open and answers over pipes, so that the cost of starting it is paid once.

Blocking, for worker threads; one conversation at a time. Nothing starts before the first question. Any error inside a
conversation ends the program, because its pipes may hold the rest of an answer; the next conversation starts it again.
It ends by itself when its input closes, so a manager that is killed leaves none behind.
"""

import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import IO, Self, cast

from fleet.ports.worktrees import EffectError
from worktrees.base.errors import effect_error
from worktrees.git.program import command, environment

ANSWER_S = 30.0  # the longest silence while an answer is due, and the longest wait for room for a question
END_S = 2.0  # for the program to end after it was asked to
KILLED_S = 2.0  # for a killed one to be gone
CHUNK = 64 * 1024  # what a pipe holds


class CoprocessError(EffectError):
    """The program ended, or stayed silent for too long, in the middle of a conversation."""

    def __init__(self, program: str, reason: str) -> None:
        super().__init__(effect_error(f"git {program} does not answer: {reason}").failure)


class Coprocess:
    """One long-lived git program of one repository."""

    def __init__(self, git_dir: Path, *args: str) -> None:
        self._git_dir = git_dir
        self._args = args
        self._turn = Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._stdin: IO[bytes]
        self._stdout: IO[bytes]
        self._unread = bytearray()
        self._closed = False

    @contextmanager
    def conversation(self) -> Iterator[Self]:
        """The program, for one question and its whole answer. Raises `CoprocessError`."""
        with self._turn:
            try:
                self._start()
                yield self
            except BaseException:
                self._end()
                raise

    def close(self) -> None:
        """End the program for good; a conversation that is under way ends with an error."""
        self._closed = True
        if not self._turn.acquire(timeout=END_S):
            if (child := self._child) is not None:  # its end wakes the caller that waits for its answer
                _signal(child, signal.SIGKILL)
            if not self._turn.acquire(timeout=END_S):
                return
        try:
            self._end()
        finally:
            self._turn.release()

    # ---- inside a conversation

    def send(self, question: bytes) -> None:
        view, fd = memoryview(question), self._stdin.fileno()
        try:
            while view:
                try:
                    view = view[os.write(fd, view) :]
                except BlockingIOError:  # it reads nothing: the pipe is full
                    self._wait(fd, select.POLLOUT)
        except BrokenPipeError as error:
            raise self._error("it ended") from error

    def read_line(self) -> bytes:
        """The next line of the answer, without its end."""
        start = 0
        while (end := self._unread.find(b"\n", start)) < 0:
            start = len(self._unread)
            self._receive()
        return self.read(end + 1)[:-1]

    def read(self, size: int) -> bytes:
        """The next bytes of the answer."""
        while len(self._unread) < size:
            self._receive()
        content = bytes(self._unread[:size])
        del self._unread[:size]
        return content

    def read_until(self, is_complete: Callable[[bytearray], bool]) -> bytes:
        """Everything that the program still sends, up to the point where the answer is complete."""
        while not is_complete(self._unread):
            self._receive()
        return self.read(len(self._unread))

    # ---- the program

    def _receive(self) -> None:
        fd = self._stdout.fileno()
        self._wait(fd, select.POLLIN)
        chunk = os.read(fd, CHUNK)
        if not chunk:
            raise self._error("it ended")
        self._unread += chunk

    def _wait(self, fd: int, event: int) -> None:
        poll = select.poll()
        poll.register(fd, event)
        if not poll.poll(ANSWER_S * 1000):
            raise self._error(f"silent for {ANSWER_S:g} s")

    def _error(self, reason: str) -> CoprocessError:
        return CoprocessError(self._args[0], reason)

    def _start(self) -> None:
        if self._child is not None:
            return
        if self._closed:
            raise self._error("closed")
        try:
            self._child = child = subprocess.Popen(
                command(*self._args),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**environment(), "GIT_DIR": str(self._git_dir)},
                cwd="/",
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise self._error(f"could not start: {error}") from error
        self._stdin, self._stdout = cast("IO[bytes]", child.stdin), cast("IO[bytes]", child.stdout)
        os.set_blocking(self._stdin.fileno(), False)

    def _end(self) -> None:
        child, self._child = self._child, None
        self._unread.clear()
        if child is None:
            return
        self._stdin.close()
        self._stdout.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(subprocess.TimeoutExpired):
                child.wait(END_S)
                return
            _signal(child, number)
            _signal(child, signal.SIGCONT)  # one that was stopped can take its locks away first
        with suppress(subprocess.TimeoutExpired):  # waiting for a disk, it can't even be killed: it is left behind
            child.wait(KILLED_S)


def _signal(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, number)
