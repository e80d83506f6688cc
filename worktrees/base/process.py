"""The one runner of child processes: own session, capped output, a limit on time, nothing left behind.

Knows nothing of git or boxes. It waits on pidfds, so that a hundred children cost no thread each, and it owns its
pipes, so that a grandchild that keeps one open can't hold up the answer.

A gated child is started in two steps: it says that it is there, and does nothing before it is told to go. When the
manager dies in between, nobody tells it to.
"""

import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Protocol

from anyio import CancelScope, CapacityLimiter, create_task_group, current_time, move_on_after, wait_readable
from anyio.lowlevel import RunVar

from fleet.core.facts import Failure
from fleet.points import reached
from fleet.ports import Broken

SPAWNS = 3  # a thousand tasks that spawn at once delay the loop by 870 ms, three at a time by 2
CHUNK = 64 * 1024
DRAIN_S = 1.0  # how long a pipe may stay open after the child and its group are gone
REAP_S = 5.0  # how long a killed child may take to die
START_S = 60.0  # how long a gated child may take to say that it is there, on a machine that is starved
READY, GO = b"r", b"go\n"
REFUSED = 75  # what the gate ends with when nobody says go

# In a shell: say that we are there, wait for the word, take the real input ($1), become the command ($2 and on).
# Its standard input is the gate, because a plain shell knows no descriptor above 9.
GATE = (
    f'printf {READY.decode()} >&0 || exit {REFUSED}; IFS= read -r word && [ "$word" = {GO.decode().strip()} ] '
    f'|| exit {REFUSED}; exec <"$1" || exit {REFUSED}; shift; exec "$@"'
)

_spawns: RunVar[CapacityLimiter] = RunVar("_spawns")


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start. The environment is the whole environment."""

    argv: Sequence[str]
    env: Mapping[str, str]
    before: tuple[str, ...] = ()
    """What makes the namespaces that it runs in, and then becomes it."""
    overlay: str = ""
    """The options of what has to be mounted there first, where something has."""
    starter: "Starter | None" = None
    """Who may start it instead, in namespaces that are there already."""
    cwd: Path | None = None
    input: bytes = b""
    pass_fds: tuple[int, ...] = ()
    merged: bool = False
    """Both streams in one, in order."""
    gated: bool = False
    """The child runs `GATE` first; its standard input is the gate, and `input` is not used."""
    init: Callable[[], int | None] | None = None
    """Once the gate is reached: the process whose end is the end of everything in the box."""
    turn: CapacityLimiter | None = None
    """What a gated child has to have while it runs: not while it is made ready, nor while its box is taken apart."""


class Leader(Protocol):
    """A process that is our child, the first of its session."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    def poll(self) -> int | None: ...


class Starter(Protocol):
    """Starts commands in another way than by a program before them."""

    async def start(self, launch: Launch, streams: tuple[int, int, int]) -> Leader | None:
        """The child; None where there is no other way."""
        ...


@dataclass(frozen=True, slots=True)
class Finished:
    """How a child ended. A negative exit code is the signal that ended it."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool
    cut: bool
    """Whether output was left out."""
    seconds: float


async def run(launch: Launch, *, timeout_s: float, cap: int, grace_s: float = 0.0) -> Finished:
    """Run a child to its end. With a grace it is asked (TERM) before it is killed; its whole group goes with it."""
    timed_out, seconds = False, 0.0
    async with born(launch, cap, grace_s) as child:
        await child.reach_gate(launch.init)
        async with launch.turn or nullcontext():
            child.open_gate()
            began = monotonic()
            with move_on_after(timeout_s) as limit:
                await wait_readable(child.pidfd)
            timed_out = limit.cancelled_caught
            seconds = monotonic() - began
        await child.stop(grace_s if timed_out else 0.0)
    outputs = [pipe.kept for pipe in child.pipes]
    return Finished(
        exit_code=child.exit_code,
        stdout=outputs[0].content(),
        stderr=outputs[1].content() if len(outputs) > 1 else b"",
        timed_out=timed_out,
        cut=any(kept.dropped for kept in outputs),
        seconds=seconds,
    )


@asynccontextmanager
async def born(launch: Launch, cap: int, grace_s: float = 0.0) -> AsyncIterator["Child"]:
    """A child whose output is read; it is gone when the block ends. Nothing in the block may raise but being cancelled.

    Raises `Broken` where it can't be started, or never got to its gate.
    """
    child = await start(launch, cap)
    try:
        async with create_task_group() as drains:
            for pipe in child.pipes:
                drains.start_soon(pipe.drain)
            yield child
            await child.stop(0.0)
            drains.cancel_scope.deadline = current_time() + DRAIN_S
    finally:
        with CancelScope(shield=True):
            await child.stop(grace_s)
            child.close()
    if child.late:
        raise Broken(Failure(kind="infrastructure", summary=f"a command did not start within {START_S:g} s"))


async def start(launch: Launch, cap: int) -> "Child":
    """A child that nobody waits for yet. Raises `Broken`."""
    async with _spawn_limiter():
        return await _spawn(launch, cap)


def _spawn_limiter() -> CapacityLimiter:
    try:
        return _spawns.get()
    except LookupError:
        limiter = CapacityLimiter(SPAWNS)
        _spawns.set(limiter)
        return limiter


@dataclass(slots=True)
class Kept:
    """The head and the tail of a stream; what lies between is counted and dropped."""

    cap: int
    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)
    dropped: int = 0

    def add(self, chunk: bytes) -> None:
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
class Pipe:
    """Our end of a stream of the child."""

    fd: int
    kept: Kept

    async def drain(self) -> None:
        more = True
        while more:
            await wait_readable(self.fd)
            more = self._read()

    def _read(self) -> bool:
        """Keep some of what is there; whether more may come."""
        with suppress(BlockingIOError):  # it was taken
            chunk = os.read(self.fd, CHUNK)
            self.kept.add(chunk)
            return bool(chunk)
        return True

    def take(self) -> Kept:
        """What came since the last time. Nobody writes any more."""
        with suppress(BlockingIOError):
            while chunk := os.read(self.fd, CHUNK):
                self.kept.add(chunk)
        taken, self.kept = self.kept, Kept(self.kept.cap)
        return taken


@dataclass(slots=True)
class Child:
    """A running child, the leader of its own session."""

    leader: Leader
    pidfd: int
    pipes: tuple[Pipe, ...]
    gate: socket.socket | None = None
    init: int | None = None
    """A pidfd of the first process in the box: it ends last, when everything else in there has ended."""
    ready: bool = False
    """It waits at its gate."""
    late: bool = False
    """It never said that it is there."""

    @property
    def exit_code(self) -> int:
        return -signal.SIGKILL if self.leader.returncode is None else self.leader.returncode

    async def reach_gate(self, init: Callable[[], int | None] | None) -> None:
        """Wait for a gated child to say that it is there. One that ends before that is left to be reaped."""
        if self.gate is None:
            return
        with move_on_after(START_S) as limit:
            await wait_readable(self.gate)
            with suppress(ConnectionError):
                if self.gate.recv(1) == READY:
                    pid = init() if init else None
                    self.init = None if pid is None else os.pidfd_open(pid)  # waits at its gate, so it is there
                    self.ready = True
                    reached("a command waits at its gate")
        self.late = limit.cancelled_caught

    def open_gate(self) -> None:
        """Let a gated child go on, if it is there."""
        if self.gate is None:
            return
        with self.gate, suppress(ConnectionError):
            if self.ready:
                self.gate.sendall(GO)
                reached("a command runs")

    def close_gate(self) -> None:
        """Nothing more will be said."""
        if self.gate is not None:
            self.gate.close()

    def take(self) -> list[Kept]:
        """What was printed since the last time, by stream."""
        return [pipe.take() for pipe in self.pipes]

    async def stop(self, grace_s: float) -> None:
        """Make sure that nobody of the group, and nobody of the box, is left. Harmless once the child is reaped."""
        if self.leader.returncode is not None:
            return
        if grace_s > 0:
            self._signal(signal.SIGTERM)
            with move_on_after(grace_s):
                await wait_readable(self.pidfd)
        self._signal(signal.SIGKILL)  # not reaped yet, so the number of the group is still ours
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
        with suppress(ProcessLookupError, PermissionError):  # a fork that is not yet in a group of its own
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
                stdin = theirs.enter_context(memory_file(launch.input))
            pipes: list[Pipe] = []
            ends: list[int] = []
            for _ in range(1 if launch.merged else 2):
                our_end, their_end = os.pipe()
                os.set_blocking(our_end, False)
                ours.callback(os.close, our_end)
                theirs.callback(os.close, their_end)
                pipes.append(Pipe(our_end, Kept(cap)))
                ends.append(their_end)
            streams = (stdin, ends[0], ends[-1])
            leader = await launch.starter.start(launch, streams) if launch.starter is not None else None
            leader = leader or _run_program(launch, streams)
            if launch.gated:
                reached("a command is started, and nobody waits for it")
            child = Child(leader, os.pidfd_open(leader.pid), tuple(pipes), gate)
            ours.pop_all()  # the child's from here on
            return child
    except (OSError, ValueError) as error:
        program = launch.argv[0]
        raise Broken(Failure(kind="infrastructure", summary=f"could not start {program}: {error}")) from error


def _run_program(launch: Launch, streams: tuple[int, int, int]) -> Leader:
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
    """A file in memory that holds `content`, read from its start: no pipe to feed, no name on a disk."""
    fd = os.memfd_create("fleet")
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd
    finally:
        os.close(fd)
