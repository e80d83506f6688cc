"""A git program that stays, and is asked again and again over pipes: what a spawn costs is paid once.

Blocking, for worker threads; one conversation at a time. Nothing starts before the first question. Whatever goes wrong
in the middle of a conversation ends the program, since nobody knows what is left in its pipes; the next one starts
anew. It ends by itself when its input closes, so a manager that is killed leaves none behind.
"""

import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Self

from worktrees.git import command, environment

ANSWER_S = 60.0  # how long the program may be silent when it owes an answer
END_S = 2.0  # how long it may take to end when asked
CHUNK = 64 * 1024  # what a pipe holds


class Gone(Exception):  # noqa: N818 - a state of the program, not a mistake in the code
    """The program ended, or stayed silent for too long, in the middle of a conversation."""


class Service:
    """One long-lived git program of one repository."""

    def __init__(self, git_dir: Path, *args: str) -> None:
        self._git_dir = git_dir
        self._args = args
        self._turn = Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._read = bytearray()
        self._closed = False

    @contextmanager
    def conversation(self) -> Iterator[Self]:
        """The program, for one question and its whole answer. Raises `Gone`."""
        with self._turn:
            try:
                self._start()
                yield self
            except BaseException:
                self._end()
                raise

    def close(self) -> None:
        """Ends the program; it is not started again."""
        with self._turn:
            self._closed = True
            self._end()

    # ---- inside a conversation

    def send(self, question: bytes) -> None:
        view = memoryview(question)
        try:
            while view:
                view = view[os.write(self._fd("stdin"), view) :]
        except BrokenPipeError as error:
            raise Gone(self._args[0]) from error

    def line(self) -> bytes:
        """The next line of the answer, without its end."""
        at = 0
        while (end := self._read.find(b"\n", at)) < 0:
            at = len(self._read)
            self._fill()
        found = bytes(self._read[:end])
        del self._read[: end + 1]
        return found

    def take(self, size: int) -> bytes:
        """The next bytes of the answer."""
        while len(self._read) < size:
            self._fill()
        found = bytes(self._read[:size])
        del self._read[:size]
        return found

    def whole(self, is_whole: Callable[[bytearray], bool]) -> bytes:
        """All of the answer, which is the last that it owes."""
        while not is_whole(self._read):
            self._fill()
        found = bytes(self._read)
        self._read.clear()
        return found

    # ---- the program

    def _fill(self) -> None:
        fd, waiting = self._fd("stdout"), select.poll()
        waiting.register(fd, select.POLLIN)
        if not waiting.poll(ANSWER_S * 1000):
            raise Gone(f"{self._args[0]}: silent for {ANSWER_S:g} s")
        chunk = os.read(fd, CHUNK)
        if not chunk:
            raise Gone(self._args[0])
        self._read += chunk

    def _fd(self, name: str) -> int:
        if self._child is None:
            raise Gone(self._args[0])
        end = self._child.stdin if name == "stdin" else self._child.stdout
        if end is None:
            raise Gone(self._args[0])
        return end.fileno()

    def _start(self) -> None:
        if self._child is not None:
            return
        if self._closed:
            raise Gone(f"{self._args[0]}: closed")
        try:
            self._child = subprocess.Popen(
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
            raise Gone(f"could not start git: {error}") from error

    def _end(self) -> None:
        child, self._child = self._child, None
        self._read.clear()
        if child is None:
            return
        for end in (child.stdin, child.stdout):
            if end is not None:
                end.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(subprocess.TimeoutExpired):
                child.wait(END_S)
                return
            with suppress(ProcessLookupError):
                os.killpg(child.pid, number)
        child.wait()
