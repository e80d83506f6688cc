"""Run child processes, each in a separate session, with capped output and a time limit, without leftover processes.

This module does not depend on git or the sandbox. It waits on pidfds, so that a hundred children do not need a thread
each. It owns its pipes, so that a grandchild that keeps one open can't delay the result.

A gated child starts in two steps: it reports that it is ready, and runs the command only when the manager allows it. If
the manager dies in between, the command never runs.
"""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Protocol

from anyio import CancelScope, CapacityLimiter, create_task_group, current_time, move_on_after, wait_readable
from anyio.abc import UNIXSocketStream
from anyio.lowlevel import RunVar

from fleet.core.facts.facts import Failure
from fleet.ports.agents import Dialogue
from fleet.ports.worktrees import EffectError
from fleet.runs.crash_points import reached
from worktrees.base.turns import Turn, loop_limiter

SPAWNS = 3  # a thousand tasks that spawn together delay the loop by 870 ms, three at a time by 2
CHUNK = 64 * 1024
DRAIN_S = 1.0  # how long a pipe may stay open after the child and its group have ended
REAP_S = 5.0  # how long a killed child may take to die
START_S = 60.0  # how long a gated child may take to get ready on a busy machine
TIMED_OUT = 124  # the exit code of timeout(1), too
READY, GO = b"r", b"go\n"
REFUSED = 75  # the exit code of a gated child that was not allowed to run

# In a shell: report readiness, wait for the manager, open the real input ($1), become the command ($2 and on). For a
# dialogue the gate stays the input: a socket that, unlike a pipe, no other process can open through /proc. The gate is
# the standard input, because a plain shell can't use descriptors above 9.
GATE = (
    f'printf {READY.decode()} >&0 || exit {REFUSED}; IFS= read -r word && [ "$word" = {GO.decode().strip()} ] '
    f'|| exit {REFUSED}; [ -z "$1" ] || exec <"$1" || exit {REFUSED}; shift; exec "$@"'
)
GATE_ITSELF = ""
"""The input of a command that keeps its gate."""

_spawns: RunVar[CapacityLimiter | None] = RunVar("_spawns")


@dataclass(frozen=True, slots=True)
class Launch:
    """A command to start."""

    argv: Sequence[str]
    env: Mapping[str, str]
    """The full environment."""
    before: tuple[str, ...] = ()
    """A command line that prepares namespaces and then becomes `argv`."""
    overlay: str = ""
    """The options of the overlay to mount first, or empty."""
    starter: "Starter | None" = None
    """Starts the command in prepared namespaces, instead of `before`."""
    cwd: Path | None = None
    input: bytes = b""
    source: int | None = None
    """A descriptor that replaces `input`."""
    pass_fds: tuple[int, ...] = ()
    merged: bool = False
    """Both output streams in one, in order."""
    gated: bool = False
    """The command runs `GATE` first. Its standard input is the gate, and `input` is not used."""
    init: Callable[[], int | None] | None = None
    """Returns the process whose end ends everything in the box, once the gate is reached."""
    limiter: Turn | None = None
    """Held while a gated command runs, but not while its box is prepared or taken apart."""
    dialogue: Dialogue | None = None
    """Communicates with a gated command through its gate."""


class Leader(Protocol):
    """A child process that leads its session."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    def poll(self) -> int | None: ...


class Starter(Protocol):
    async def start(self, launch: Launch, streams: tuple[int, int, int]) -> Leader | None:
        """Start a command, or return None if it must be started as a separate program."""
        ...


@dataclass(frozen=True, slots=True)
class Finished:
    """The result of a child."""

    exit_code: int
    """A negative number is a signal."""
    stdout: bytes
    stderr: bytes
    timed_out: bool
    cut: bool
    """Whether output was left out."""
    seconds: float
    peak_bytes: int = 0
    """The highest memory use measured, or 0."""

    @property
    def shell_code(self) -> int:
        """The exit code in shell convention: 124 after a timeout, 128 plus the signal after a kill."""
        if self.timed_out:
            return TIMED_OUT
        return self.exit_code if self.exit_code >= 0 else 128 - self.exit_code

    @property
    def text(self) -> str:
        """The standard output."""
        return self.stdout.decode("utf-8", "replace")


async def run(launch: Launch, *, timeout_s: float, cap: int, grace_s: float = 0.0) -> Finished:
    """Run a child to its end. At the limit, send TERM, wait for the grace period, and kill its group.

    Raises `EffectError` if it can't start or never reaches its gate.
    """
    timed_out, seconds = False, 0.0
    async with loop_limiter(_spawns, SPAWNS):
        child = await _spawn(launch, cap)
    try:
        async with create_task_group() as drains:  # only a dialogue or a cancellation raises here
            for pipe in child.pipes:
                drains.start_soon(pipe.drain)
            await child.reach_gate(launch.init)
            async with launch.limiter or nullcontext():
                child.open_gate()
                if launch.dialogue is not None:
                    drains.start_soon(child.speak, launch.dialogue)
                started = monotonic()
                with move_on_after(timeout_s) as limit:
                    await wait_readable(child.pidfd)
                timed_out, seconds = limit.cancelled_caught, monotonic() - started
            await child.stop(grace_s if timed_out else 0.0)
            drains.cancel_scope.deadline = current_time() + DRAIN_S
    finally:
        with CancelScope(shield=True):
            await child.stop(grace_s)
            child.close()
    if child.late:
        raise effect_error(f"a command did not start within {START_S:g} s")
    return Finished(
        exit_code=child.exit_code,
        stdout=child.pipes[0].content(),
        stderr=b"" if launch.merged else child.pipes[1].content(),
        timed_out=timed_out,
        cut=any(pipe.dropped for pipe in child.pipes),
        seconds=seconds,
    )


@dataclass(slots=True)
class OutputPipe:
    """Our end of one of the child's streams. Keeps the head and the tail, and counts and drops the middle."""

    fd: int
    cap: int
    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    dropped: int = 0

    async def drain(self) -> None:
        while True:
            await wait_readable(self.fd)
            with suppress(BlockingIOError):
                chunk = os.read(self.fd, CHUNK)
                if not chunk:
                    return
                self._keep(chunk)

    def _keep(self, chunk: bytes) -> None:
        room = self.cap // 2 - len(self.head)
        self.head += chunk[:room]
        self.tail += chunk[room:]
        if len(self.tail) > self.cap:
            self._trim()

    def _trim(self) -> None:
        extra = len(self.tail) - self.cap // 2
        if extra > 0:
            del self.tail[:extra]
            self.dropped += extra

    def content(self) -> bytes:
        if self.dropped or len(self.head) + len(self.tail) > self.cap:
            self._trim()
        gap = b"\n[... %d bytes left out ...]\n" % self.dropped if self.dropped else b""
        return bytes(self.head) + gap + bytes(self.tail)


@dataclass(slots=True)
class Child:
    """A running child that leads its own session."""

    leader: Leader
    pidfd: int
    pipes: tuple[OutputPipe, ...]
    gate: socket.socket | None = None
    init: int | None = None
    """A pidfd of the first process in the box. It ends last, after all others in the box."""
    ready: bool = False
    """Whether it waits at its gate."""
    late: bool = False
    """Whether it failed to reach its gate in time."""
    speaks: bool = False
    """Whether its gate stays open for a dialogue."""

    @property
    def exit_code(self) -> int:
        return -signal.SIGKILL if self.leader.returncode is None else self.leader.returncode

    async def reach_gate(self, init: Callable[[], int | None] | None) -> None:
        """Wait until a gated child is ready or has ended."""
        if self.gate is None:
            return
        with move_on_after(START_S) as limit:
            await wait_readable(self.gate)
            with suppress(ConnectionError):
                if self.gate.recv(1) == READY:
                    pid = init() if init else None
                    self.init = None if pid is None else os.pidfd_open(pid)  # waits at its gate, so it exists
                    self.ready = True
                    reached("a command waits at its gate")
        self.late = limit.cancelled_caught

    def open_gate(self) -> None:
        """Let a gated child run, if it is ready. Its next read from the gate is the end, except in a dialogue."""
        if self.gate is None:
            return
        with suppress(ConnectionError):
            if self.ready:
                self.gate.sendall(GO)
                reached("a command runs")
        if not self.speaks:
            self.gate.close()

    async def speak(self, dialogue: Dialogue) -> None:
        """Run the dialogue with the command through its gate."""
        if self.gate is not None:
            async with await UNIXSocketStream.from_socket(self.gate.dup()) as stream:
                self.gate.close()
                await dialogue(stream)

    async def stop(self, grace_s: float) -> None:
        """Make sure that all processes of the group and the box have ended. Harmless once the child is reaped."""
        if self.leader.returncode is not None:
            return
        if grace_s > 0:
            self._signal(signal.SIGTERM)
            with move_on_after(grace_s):
                await wait_readable(self.pidfd)
        self._signal(signal.SIGKILL)  # not reaped yet, so the process group id is still ours
        with move_on_after(REAP_S):
            await wait_readable(self.pidfd)
            if self.init is not None:
                with suppress(ProcessLookupError, PermissionError):
                    signal.pidfd_send_signal(self.init, signal.SIGKILL)
                await wait_readable(self.init)
        self.leader.poll()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.leader.pid, number)
            return
        with suppress(ProcessLookupError, PermissionError):  # a fork that is not yet in a separate group
            signal.pidfd_send_signal(self.pidfd, number)

    def close(self) -> None:
        os.close(self.pidfd)
        if self.init is not None:
            os.close(self.init)
        if self.gate is not None:
            self.gate.close()
        for pipe in self.pipes:
            os.close(pipe.fd)


async def _spawn(launch: Launch, cap: int) -> Child:
    try:
        with ExitStack() as ours, ExitStack() as theirs:
            gate: socket.socket | None = None
            if launch.gated:
                gate, their_gate = socket.socketpair()
                ours.enter_context(gate)
                stdin = theirs.enter_context(their_gate).fileno()
            else:
                stdin = theirs.enter_context(memory_file(launch.input)) if launch.source is None else launch.source
            pipes: list[OutputPipe] = []
            outputs: list[int] = []
            for _ in range(1 if launch.merged else 2):
                our_end, their_end = os.pipe()
                os.set_blocking(our_end, False)
                ours.callback(os.close, our_end)
                theirs.callback(os.close, their_end)
                pipes.append(OutputPipe(our_end, cap))
                outputs.append(their_end)
            streams = (stdin, outputs[0], outputs[-1])
            leader = await launch.starter.start(launch, streams) if launch.starter is not None else None
            leader = leader or _start_program(launch, streams)
            if launch.gated:
                reached("a command is started, and not yet waited for")
            child = Child(leader, os.pidfd_open(leader.pid), tuple(pipes), gate, speaks=launch.dialogue is not None)
            ours.pop_all()  # owned by the child from now on
            return child
    except (OSError, ValueError) as error:
        raise effect_error(f"could not start {launch.argv[0]}: {error}") from error


def _start_program(launch: Launch, streams: tuple[int, int, int]) -> Leader:
    return subprocess.Popen(
        [*launch.before, *launch.argv],
        stdin=streams[0],
        stdout=streams[1],
        stderr=streams[2],
        env=dict(launch.env),
        cwd=launch.cwd,
        pass_fds=launch.pass_fds,
        start_new_session=True,
    )


@contextmanager
def memory_file(content: bytes) -> Iterator[int]:
    """Create a file in memory with `content`, read from its start. It needs no pipe and no name on disk."""
    fd = os.memfd_create("fleet")
    try:
        with os.fdopen(fd, "wb", closefd=False) as file:
            file.write(content)
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd
    finally:
        os.close(fd)


# ---- descendants -----------------------------------------------------------------------------------------------------
# Direct and indirect children of this process, for waits that they must not outlive.


PROC = Path("/proc")
POLL_S = 0.01


def descendants(of: int | None = None) -> frozenset[int]:
    """All descendants of a process, by default of this one."""
    first = of or os.getpid()
    parents = {int(folder.name): _parent(folder) for folder in PROC.iterdir() if folder.name.isdigit()}
    found = {first}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return frozenset(found - {first})


def kill_descendants(*, marked: bytes = b"") -> bool:
    """Kill descendants, also stopped ones. Return whether there were any.

    With `marked`, kill only processes with it in their environment.
    """
    pids = [pid for pid in descendants() if not marked or marked in _environment(pid)]
    _send(pids, signal.SIGKILL)
    return bool(pids)


def end_descendants(grace_s: float) -> None:
    """Send TERM to descendants, also stopped ones, so that git removes its locks. Kill the rest afterwards."""
    _send(descendants(), signal.SIGTERM, signal.SIGCONT)
    until = time.monotonic() + grace_s
    while descendants() and time.monotonic() < until:
        time.sleep(POLL_S)
    kill_descendants()


def _send(pids: Iterable[int], *signals: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            for each in signals:
                os.kill(pid, each)


def _parent(folder: Path) -> int:
    try:
        text = (folder / "stat").read_bytes()
    except OSError:  # it has ended in the meantime
        return 0
    status, parent = text.rpartition(b")")[2].split()[:2]  # the name before them may contain any character
    return 0 if status == b"Z" else int(parent)  # a zombie has no children, and only waits to be reaped


def _environment(pid: int) -> bytes:
    try:
        return (PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return b""


# ---- errors ----------------------------------------------------------------------------------------------------------
# Errors of the machine, as the engine records them: an `EffectError` of the kind `infrastructure`.


def effect_error(summary: str, evidence: str = "") -> EffectError:
    """Return an error caused by git, a repository, the disk or the sandbox, not by the work."""
    return EffectError(Failure(kind="infrastructure", summary=summary, evidence=evidence))


@contextmanager
def os_errors(summary: str) -> Iterator[None]:
    """Raise an `OSError` in the block as an `EffectError` with this summary and the reason."""
    try:
        yield
    except OSError as error:
        raise effect_error(f"{summary}: {error}") from error
