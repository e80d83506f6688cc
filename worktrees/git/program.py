"""Run the git program with the same environment and options every time, in any repository.

Configuration by a repository's owner or a worker must not run: no hooks, no fsmonitor, no global or system
configuration, no prompts. A worktree is always given as GIT_DIR and GIT_WORK_TREE, so its `.git` file is never trusted.
"""

import os
import re
import select
import signal
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import IO, TYPE_CHECKING, Self, cast

from anyio import CapacityLimiter
from anyio.lowlevel import RunVar

from fleet.core.base.ids import Sha
from fleet.ports.worktrees import EffectError
from worktrees.base.process import Finished, Launch, effect_error, run
from worktrees.base.turns import loop_limiter

AT_ONCE = 8  # concurrent git programs; more only compete for the cores
CAP = 256 * 1024 * 1024  # of an answer; a listing of a million files fits
GRACE_S = 2.0  # git removes its lock files on TERM
TIMEOUT_S = 300.0
SHOWN = 2_000  # characters of git's error output in a failure

SAFE_OPTIONS = tuple(
    "core.hooksPath=/dev/null core.fsmonitor=false gc.auto=0 maintenance.auto=false commit.gpgSign=false "
    "protocol.allow=never protocol.file.allow=always submodule.recurse=false core.untrackedCache=false "
    "core.alternateRefsCommand=true core.sshCommand=false core.askPass=false credential.helper= core.pager=cat".split()
)
"""For our own repositories. The configuration of other repositories is never read: see `isolated_git_dir.py`."""
OWN_SETTINGS = re.compile(r"GIT_CONFIG_\w+|HOME|XDG_CONFIG_HOME|SUDO_UID")
"""The variables for the user's trusted settings."""
FOR_SIGNING = (
    "HOME",
    "GNUPGHOME",
    "GPG_TTY",
    "SSH_AUTH_SOCK",
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
    "DISPLAY",
)
"""The variables that a signing program uses to find keys and agents."""

if TYPE_CHECKING:
    from worktrees.git.isolated_git_dir import IsolatedGitDir

_programs: RunVar[CapacityLimiter | None] = RunVar("_programs")


class GitError(EffectError):
    """Git exited with an unexpected code, or took too long."""

    def __init__(self, args: Sequence[str], answer: Finished) -> None:
        output = f"stopped after {answer.seconds:.0f} s" if answer.timed_out else text(answer.stderr).strip()
        last = output.splitlines()[-1] if output else f"exit code {answer.exit_code}"
        name = next((arg for arg in args if not arg.startswith(("-", "/"))), "")  # after `-C FOLDER`
        super().__init__(effect_error(f"git {name} failed: {last}", output[-SHOWN:]).failure)


def environment() -> dict[str, str]:
    """Return the full environment for git."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/nonexistent",
        "LANG": "C.UTF-8",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_OPTIONAL_LOCKS": "0",
    }


def remote_command(service: str, *options: str) -> str:
    """Return the command line of the remote side of a fetch or a push. Git passes it to a shell, so it is constant."""
    pairs = " ".join(f"-c '{option}'" for option in (*SAFE_OPTIONS, *options))
    return f"git {pairs} {service}"


def command(*args: str) -> tuple[str, ...]:
    """Return the git command line with these arguments."""
    return ("git", *(part for option in SAFE_OPTIONS for part in ("-c", option)), *args)


async def find_repository(path: Path, *query: str) -> Finished:
    """Query `git rev-parse` for the repository around a path, as its user: git refuses repositories of other users.

    This is the only query that uses the settings of the user and of the repository. It does not start other programs.
    """
    return await _run(("-C", str(path), "rev-parse", "--path-format=absolute", *query), _users_environment())


async def user_setting(key: str) -> str:
    """Return a value of the user's git configuration, or an empty string."""
    answer = await _run(("config", "--global", "--includes", "--get", key), _users_environment())
    return text(answer.stdout).strip()


def signing_environment() -> dict[str, str]:
    return {name: os.environ[name] for name in FOR_SIGNING if name in os.environ}


def _users_environment() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if OWN_SETTINGS.fullmatch(name)}
    return {name: value for name, value in environment().items() if not OWN_SETTINGS.fullmatch(name)} | own


async def ask_git(
    *args: str,
    env: Mapping[str, str] | None = None,
    data: bytes = b"",
    source: int | None = None,
    cap: int = CAP,
    timeout_s: float = TIMEOUT_S,
) -> Finished:
    """Run git and return its answer with any exit code. Raises `EffectError` if it can't finish in time.

    It reads `data`, or the content of a descriptor without a copy in memory.
    """
    whole = {**environment(), **(env or {})}
    return await _run(args, whole, data=data, source=source, cap=cap, timeout_s=timeout_s)


async def _run(
    args: Sequence[str],
    env: Mapping[str, str],
    *,
    data: bytes = b"",
    source: int | None = None,
    cap: int = CAP,
    timeout_s: float = TIMEOUT_S,
) -> Finished:
    launch = Launch(command(*args), env, cwd=Path("/"), input=data, source=source)
    async with loop_limiter(_programs, AT_ONCE):
        answer = await run(launch, timeout_s=timeout_s, cap=cap, grace_s=GRACE_S)
    if answer.timed_out:
        raise GitError(args, answer)
    return answer


@dataclass(frozen=True, slots=True)
class Git:
    """Git in one repository, and in one worktree of it if given."""

    git_dir: Path
    work_tree: Path | None = None
    stand_in: "IsolatedGitDir | None" = None
    """The source of objects, refs and configuration in a repository that is not ours."""
    timeout_s: float = TIMEOUT_S

    @property
    def place(self) -> dict[str, str]:
        """The variables that select the repository."""
        place = {"GIT_DIR": str(self.git_dir)}
        if self.stand_in is not None and self.stand_in.path != self.git_dir:
            place["GIT_COMMON_DIR"] = str(self.stand_in.path)
        if self.work_tree is not None:
            place["GIT_WORK_TREE"] = str(self.work_tree)
        return place

    async def ask(
        self, *args: str, env: Mapping[str, str] | None = None, data: bytes = b"", cap: int = CAP
    ) -> Finished:
        """Run git and return its answer with any exit code."""
        if self.work_tree is not None:
            args = ("-C", str(self.work_tree), *args)
        return await ask_git(*args, env={**self.place, **(env or {})}, data=data, cap=cap, timeout_s=self.timeout_s)

    async def __call__(
        self,
        *args: str,
        env: Mapping[str, str] | None = None,
        data: bytes = b"",
        also_ok: Collection[int] = (),
        cap: int = CAP,
    ) -> bytes:
        """Return the output of git. Raises `GitError` if the exit code is not 0 or in `also_ok`."""
        answer = await self.ask(*args, env=env, data=data, cap=cap)
        if answer.exit_code != 0 and answer.exit_code not in also_ok:
            raise GitError(args, answer)
        return answer.stdout

    async def line(self, *args: str, env: Mapping[str, str] | None = None, data: bytes = b"") -> str:
        """Return the output of git as one line."""
        return text(await self(*args, env=env, data=data)).strip()

    async def sha(self, revision: str) -> Sha | None:
        """Return the id of the commit of a ref or an id, or None."""
        answer = await self.ask("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        return Sha(text(answer.stdout).strip()) if answer.exit_code == 0 else None

    async def is_ancestor(self, old: str, new: str) -> bool:
        """Whether `old` is `new` or an ancestor of it. False if one of them is missing."""
        return (await self.ask("merge-base", "--is-ancestor", old, new)).exit_code == 0

    async def refs(self, prefix: str) -> dict[str, Sha]:
        """Return the refs below a prefix, each with the id of its object."""
        listed = text(await self("for-each-ref", "--format=%(refname) %(objectname)", prefix))
        return {ref: Sha(id_) for ref, id_ in (line.split(" ", 1) for line in listed.splitlines())}


def text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def fields(raw: bytes) -> list[str]:
    """Split an answer with `-z`. Bytes that are not UTF-8 are escaped reversibly."""
    return [os.fsdecode(part) for part in raw.split(b"\0") if part]


# ---- coprocess -------------------------------------------------------------------------------------------------------
# A long-running git program that answers over pipes, so that starting it costs only once.
#
# Blocking, for worker threads, with one conversation at a time. It starts with the first request. Any error inside a
# conversation ends the program, because its pipes may still contain a partial answer. The next conversation starts it
# again. It exits when its input closes, so a manager that is killed does not leave it behind.


KILLED_S = 2.0  # for a killed program to exit
CHUNK = 64 * 1024  # size of a pipe buffer


@dataclass(frozen=True, slots=True)
class CommandTimeouts:
    """Timeouts of a long-running program."""

    answer_s: float = 30.0
    """The longest wait for output while an answer is due, and for room in the input pipe."""
    end_s: float = 2.0
    """For the program to exit after its input closed."""


PATIENCE = CommandTimeouts()


class CoprocessError(EffectError):
    """The program exited, or did not answer in time, in the middle of a conversation."""

    def __init__(self, program: str, reason: str) -> None:
        super().__init__(effect_error(f"git {program} does not respond: {reason}").failure)


class Coprocess:
    """One long-running git program in one repository."""

    def __init__(self, git_dir: Path, *args: str, patience: CommandTimeouts = PATIENCE) -> None:
        self._git_dir = git_dir
        self._patience = patience
        self._args = args
        self._turn = Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._stdin: IO[bytes]
        self._stdout: IO[bytes]
        self._unread = bytearray()
        self._closed = False

    @contextmanager
    def conversation(self) -> Iterator[Self]:
        """Lock the program for one request and its full answer. Raises `CoprocessError`."""
        with self._turn:
            try:
                self._start()
                yield self
            except BaseException:
                self._end()
                raise

    def close(self) -> None:
        """End the program permanently. A running conversation ends with an error."""
        self._closed = True
        if not self._turn.acquire(timeout=self._patience.end_s):
            if (child := self._child) is not None:  # its end wakes the caller that waits for its answer
                _signal(child, signal.SIGKILL)
            if not self._turn.acquire(timeout=self._patience.end_s):
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
                except BlockingIOError:  # the program does not read: the pipe is full
                    self._wait(fd, select.POLLOUT)
        except BrokenPipeError as error:
            raise self._error("it ended") from error

    def read_line(self) -> bytes:
        """Return the next line of the answer, without its end."""
        start = 0
        while (end := self._unread.find(b"\n", start)) < 0:
            start = len(self._unread)
            self._receive()
        return self.read(end + 1)[:-1]

    def read(self, size: int) -> bytes:
        """Return the next bytes of the answer."""
        while len(self._unread) < size:
            self._receive()
        content = bytes(self._unread[:size])
        del self._unread[:size]
        return content

    def read_until(self, is_complete: Callable[[bytearray], bool]) -> bytes:
        """Return all output up to the point where the answer is complete."""
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
        answer_s = self._patience.answer_s
        if not poll.poll(answer_s * 1000):
            raise self._error(f"silent for {answer_s:g} s")

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
                child.wait(self._patience.end_s)
                return
            _signal(child, number)
            _signal(child, signal.SIGCONT)  # git on TERM removes its locks first
        with suppress(subprocess.TimeoutExpired):  # a process that waits for a disk can't be killed, and is left behind
            child.wait(KILLED_S)


def _signal(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(child.pid, number)
