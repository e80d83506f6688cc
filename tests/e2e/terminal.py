"""A terminal of our own with a `fleet` in front of it, for tests of what a person sees and types."""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Thread

from tests.e2e.stage import PATIENCE_S, Stage, wait_for
from tests.e2e.warm import WarmProcess

SIZE = (30, 110)  # rows, columns


@dataclass
class Terminal:
    """A `fleet` on a terminal."""

    process: WarmProcess | subprocess.Popen[bytes]
    master: int
    seen: bytearray = field(default_factory=bytearray)

    def read(self) -> None:
        with suppress(OSError):  # the other end was closed
            while chunk := os.read(self.master, 4096):
                self.seen += chunk

    @property
    def text(self) -> str:
        return self.seen.decode("utf-8", "replace")

    def shows(self, words: str, times: int = 1) -> None:
        """Wait until it was written so often. A full screen writes words that changed only."""
        wait_for(lambda: self.text.count(words) >= times)

    def close(self) -> None:
        """Send the session the signal that closing the window sends."""
        os.killpg(self.process.pid, signal.SIGHUP)
        self.process.wait(PATIENCE_S)

    def types(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def ended(self, code: int) -> None:
        assert self.process.wait(PATIENCE_S) == code, self.text
        assert "Traceback" not in self.text


@contextmanager
def at_a_terminal(stage: Stage, *arguments: str) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *SIZE, 0, 0))
    process = stage.start(*arguments, streams=(slave, slave, slave), TERM="xterm")
    os.close(slave)
    terminal = Terminal(process, master)
    reader = Thread(target=terminal.read)
    reader.start()
    try:
        yield terminal
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        with suppress(OSError):
            os.close(master)
        reader.join()
