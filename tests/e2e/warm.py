"""`fleet` as a fork of an interpreter that has imported everything: half of a short run's time is importing the SDK.

A fork is a process like any other, with its own id, session, environment, working directory, streams and signals. Only
the start of an interpreter is missing; `tests/house/test_start.py`, tests of what a start imports and the commands of
the pages (`tests/docs`) start one each time, and so does a test that sets a variable the interpreter reads.
"""

import atexit
import gc
import importlib
import io
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO

ROOT = Path(__file__).parents[2]
MESSAGE_BYTES = 200_000
PACKAGES = ("agents", "dashboards", "fleet", "worktrees")
EXTRAS = frozenset({"ray"})
"""Packages that are not installed for the tests: modules that stand on one are run by a program of its environment."""
INTERPRETER_ENVIRONMENT = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
READ_AT_START = ("PYTHON", "LANG", "LC_", "MALLOC", "LD_", "TZ")
"""Variables that an interpreter reads when it starts, by their first letters."""


# ---- in the tests ----------------------------------------------------------------------------------------------------


@dataclass
class WarmProcess:
    """A forked `fleet`, to be used like a `subprocess.Popen`."""

    pid: int
    args: Sequence[str]
    report: BinaryIO
    """Where the interpreter that forked it writes its exit code."""
    returncode: int | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        with self._lock:
            if self.returncode is None:
                if not select.select([self.report], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
                self.returncode = int(self.report.readline())
                self.report.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def can_be_warm(environment: Mapping[str, str]) -> bool:
    """Whether a fork behaves like a new interpreter with this environment."""
    read_at_start = {name: value for name, value in environment.items() if name.startswith(READ_AT_START)}
    return read_at_start == {"LANG": INTERPRETER_ENVIRONMENT["LANG"]}


def start_fleet(
    *arguments: str,
    cwd: Path,
    environment: Mapping[str, str],
    streams: tuple[int, int, int],
    new_session: bool = False,
) -> WarmProcess:
    """Start `fleet` with these arguments and these streams for input, output and errors."""
    request = {"arguments": arguments, "cwd": str(cwd), "environment": dict(environment), "new_session": new_session}
    message = json.dumps(request).encode()
    assert len(message) < MESSAGE_BYTES, "too long for one message"
    readable, writable = os.pipe()
    channel, lock = _interpreter()
    with lock:
        socket.send_fds(channel, [message], [*streams, writable])
    os.close(writable)
    report = os.fdopen(readable, "rb", buffering=0)
    return WarmProcess(int(report.readline()), ("fleet", *arguments), report)


def end_of_fleet(
    *arguments: str, cwd: Path, environment: Mapping[str, str], given: bytes = b"", limit_s: float
) -> subprocess.CompletedProcess[str]:
    """Run `fleet` to its end."""
    with TemporaryFile() as stdin, TemporaryFile() as out, TemporaryFile() as err:
        stdin.write(given)
        stdin.seek(0)
        streams = (stdin.fileno(), out.fileno(), err.fileno())
        process = start_fleet(*arguments, cwd=cwd, environment=environment, streams=streams)
        try:
            code = process.wait(limit_s)
        finally:
            process.kill()
        out.seek(0)
        err.seek(0)
        texts = [file.read().decode("utf-8", "replace") for file in (out, err)]
    return subprocess.CompletedProcess(process.args, code, *texts)


@cache
def _interpreter() -> tuple[socket.socket, threading.Lock]:
    """The interpreter of this process, started when it is first needed. It ends when the channel is closed."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", "tests.e2e.warm", str(theirs.fileno())]
    subprocess.run(
        command, cwd=ROOT, env=INTERPRETER_ENVIRONMENT, pass_fds=[theirs.fileno()], start_new_session=True, check=True
    )
    theirs.close()
    atexit.register(ours.close)
    return ours, threading.Lock()


# ---- in the interpreter that forks -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    """What a fork is to become."""

    arguments: list[str]
    cwd: str
    environment: dict[str, str]
    new_session: bool
    streams: list[int]


def import_everything() -> None:
    for name in PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if module.name.endswith("__main__"):
                continue
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as missing:
                if missing.name not in EXTRAS:
                    raise
    assert threading.active_count() == 1, "a fork would lack the other threads"
    gc.collect()
    gc.freeze()


def fork_on_request(channel: socket.socket) -> Request:
    """Fork for each request. Returns in the forks only; exits when the tests have closed the channel."""
    reports: dict[int, tuple[int, int]] = {}  # by the pidfd of a fork: its pid, and where its exit code goes
    while True:
        readable = select.select([channel.fileno(), *reports], [], [])[0]
        for ended in reports.keys() & set(readable):
            pid, report = reports.pop(ended)
            os.close(ended)
            status = os.waitpid(pid, 0)[1]
            with suppress(BrokenPipeError):
                os.write(report, b"%d\n" % os.waitstatus_to_exitcode(status))
            os.close(report)
        if channel.fileno() in readable:
            message, fds, _, _ = socket.recv_fds(channel, MESSAGE_BYTES, 4)
            if not message:
                os._exit(0)
            *streams, report = fds
            pid = os.fork()
            if not pid:
                channel.close()
                return Request(**json.loads(message), streams=streams)
            for stream in streams:
                os.close(stream)
            os.write(report, b"%d\n" % pid)
            reports[os.pidfd_open(pid)] = (pid, report)


def become(request: Request) -> None:
    """Turn a fork into what `python -m fleet` is when its first line runs."""
    if request.new_session:
        os.setsid()
    for number, descriptor in enumerate(request.streams):
        os.dup2(descriptor, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(request.cwd)
    os.environ.clear()
    os.environ.update(request.environment)
    sys.path[0] = request.cwd
    sys.argv[:] = [str(ROOT / "fleet" / "__main__.py"), *request.arguments]
    for name, mode in (("stdin", "rb"), ("stdout", "wb"), ("stderr", "wb")):
        stream = _text_stream(getattr(sys, name), mode, line_buffering=name == "stderr")
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _text_stream(old: object, mode: str, *, line_buffering: bool = False) -> io.TextIOWrapper:
    """The same stream with the buffering that fits what it is now connected to."""
    assert isinstance(old, io.TextIOWrapper)
    binary = open(old.fileno(), mode, closefd=False)  # noqa: SIM115 - open until the process ends
    buffered = line_buffering or binary.isatty()
    return io.TextIOWrapper(binary, old.encoding, old.errors, line_buffering=buffered)


def run_fleet() -> None:
    """Run the program as `python -m fleet` does, but leave without taking apart all that was imported."""
    from fleet.cli.entry import run_program  # noqa: PLC0415 - only forks need it

    code = 0
    try:
        run_program()
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        code = end.code or 0
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    if os.fork():  # some tests count the children of their process: this is not one of them
        os._exit(0)
    import_everything()
    become(fork_on_request(socket.socket(fileno=int(sys.argv[1]))))
    run_fleet()
