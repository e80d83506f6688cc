"""A person at a prompt: one shell for a page, so that `cd`, `export` and `&` mean what they mean to a reader."""

import os
import re
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.docs.page import Command, File, matches

PATIENCE_S = 300.0
"""How long a command may take that should end; a machine with much to do is slow, not wrong."""
PORTS = ("8080", "9464")
"""Ports that pages name. Here they are others, which are free."""
KILLED = re.compile(r"^bash: line \d+: +\d+ Killed .*\n", re.MULTILINE)
"""The note about a killed job, which bash prints with whichever later command it notices it in."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a command."""

    code: int
    printed: str


@dataclass
class Shell:
    """One shell; what its commands print goes to a file each."""

    room: Path
    environment: Mapping[str, str]
    where: Path
    ports: dict[str, str] = field(default_factory=lambda: {shown: str(free_port()) for shown in PORTS})
    _count: int = 0

    def __enter__(self) -> Self:
        self._answers, written = os.pipe()
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-c", _LOOP, "bash", str(written)],
            cwd=self.where,
            env=dict(self.environment),
            stdin=subprocess.PIPE,
            start_new_session=True,
            pass_fds=(written,),
        )
        os.close(written)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(PATIENCE_S)
        finally:
            os.close(self._answers)

    def run(self, command: Command) -> Result:
        """Run a command to its end; one that ends in `&` until it has printed what is shown."""
        self._count += 1
        text, out = self.room / f"{self._count}.command", self.room / f"{self._count}.printed"
        text.write_text(self._with_ports(command.text), encoding="utf-8")
        self._send(f"{text}\n{out}\n")
        code = int(self._answer(command))
        if command.text.rstrip().endswith("&") and command.shown:
            _wait(lambda: matches(command.shown, self._printed(out)))
        return Result(code, self._printed(out))

    def write(self, file: File) -> None:
        """Write a file in the shell's folder."""
        (self.here / file.name).write_text(self._with_ports(file.text), encoding="utf-8")

    @property
    def here(self) -> Path:
        return Path(f"/proc/{self._process.pid}/cwd").resolve()

    def _send(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode())
        self._process.stdin.flush()

    def _answer(self, command: Command) -> str:
        ready, _, _ = select.select([self._answers], [], [], PATIENCE_S)
        assert ready, f"line {command.line}: it does not end: {command.text}"
        return os.read(self._answers, 100).decode()

    def _printed(self, out: Path) -> str:
        text = KILLED.sub("", out.read_text(encoding="utf-8", errors="replace"))
        for shown, real in self.ports.items():
            text = re.sub(rf"\b{real}\b", shown, text)
        return text

    def _with_ports(self, text: str) -> str:
        for shown, real in self.ports.items():
            text = re.sub(rf"\b{shown}\b", real, text)
        return text


# Each command is a file, so that nothing in it has to be quoted; `(exit N)` hands it the exit code of the one before.
_LOOP = """
code=0
while read -r typed && read -r out; do
    text=$(cat "$typed")
    { (exit $code); eval "$text"; } </dev/null >"$out" 2>&1
    code=$?
    echo $code >&$1
done
"""


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def _wait(happened: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < until, "it did not print what is shown"
        time.sleep(0.05)
