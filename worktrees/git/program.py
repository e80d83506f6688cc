"""The one doorway to the git program: the same environment and options every time, whoever's repository it is.

Nothing that a repository's owner or a worker configured may run here: no hooks, no fsmonitor, no global or system
configuration, no prompts. A worktree is always named by GIT_DIR and GIT_WORK_TREE, so its `.git` file is never trusted.
"""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from anyio import CapacityLimiter
from anyio.lowlevel import RunVar

from fleet.core.facts import Failure
from fleet.ports import Broken
from worktrees.process import Launch, run

AT_ONCE = 8  # git programs running at one time; more only take turns on the cores
CAP = 256 * 1024 * 1024  # of an answer; a listing of a million files fits
GRACE_S = 2.0  # asked first, git removes its own lock files
TIMEOUT_S = 300.0
SHOWN = 2_000  # characters of git's complaint in a failure

SAFE_OPTIONS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "commit.gpgSign=false",
    "protocol.allow=never",
    "protocol.file.allow=always",
    "submodule.recurse=false",
    "core.untrackedCache=false",
    "safe.directory=*",
)

_programs: RunVar[CapacityLimiter] = RunVar("_programs")


class GitFailed(Broken):
    """Git answered with an exit code nobody expected."""

    def __init__(self, args: tuple[str, ...], exit_code: int, complaint: str) -> None:
        self.exit_code = exit_code
        self.complaint = complaint.strip()[-SHOWN:]
        last = self.complaint.splitlines()[-1] if self.complaint else f"exit code {exit_code}"
        super().__init__(
            Failure(kind="infrastructure", summary=f"git {args[0]} failed: {last}", evidence=self.complaint)
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """What git said."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    cut: bool = False
    """Whether the middle of it was left out."""


def environment() -> dict[str, str]:
    """The whole environment of every git program."""
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
        "GIT_OPTIONAL_LOCKS": "0",
    }


def serving(service: str, *options: str) -> str:
    """The command line of the far side of a fetch or a push; git hands it to a shell, so it holds constants only."""
    pairs = " ".join(f"-c '{option}'" for option in (*SAFE_OPTIONS, *options))
    return f"git {pairs} {service}"


def command(*args: str) -> tuple[str, ...]:
    """The command line of git with these arguments."""
    return ("git", *(part for option in SAFE_OPTIONS for part in ("-c", option)), *args)


async def ask_git(
    *args: str, env: Mapping[str, str] | None = None, data: bytes = b"", timeout_s: float = TIMEOUT_S, cap: int = CAP
) -> Answer:
    """Run git and take whatever it answers. Raises `Broken` when it can't be run or takes too long."""
    launch = Launch(command(*args), {**environment(), **(env or {})}, cwd=Path("/"), input=data)
    async with _program_limiter():
        done = await run(launch, timeout_s=timeout_s, cap=cap, grace_s=GRACE_S)
    if done.timed_out:
        raise GitFailed(args, done.exit_code, f"took longer than {timeout_s:g} s")
    return Answer(done.exit_code, done.stdout, done.stderr, done.cut)


async def git(*args: str, env: Mapping[str, str] | None = None, data: bytes = b"") -> bytes:
    """Run git; anything but success raises `GitFailed`."""
    answer = await ask_git(*args, env=env, data=data)
    if answer.exit_code != 0:
        raise GitFailed(args, answer.exit_code, text(answer.stderr))
    return answer.stdout


@dataclass(frozen=True, slots=True)
class Git:
    """Git in one repository, and in one worktree of it where that is named."""

    git_dir: Path
    work_tree: Path | None = None

    def _env(self, more: Mapping[str, str] | None) -> dict[str, str]:
        named = {"GIT_DIR": str(self.git_dir)}
        if self.work_tree is not None:
            named["GIT_WORK_TREE"] = str(self.work_tree)
        return {**named, **(more or {})}

    async def ask(self, *args: str, env: Mapping[str, str] | None = None, cap: int = CAP) -> Answer:
        return await ask_git(*self._at(), *args, env=self._env(env), cap=cap)

    async def __call__(
        self,
        *args: str,
        env: Mapping[str, str] | None = None,
        data: bytes = b"",
        also_ok: Collection[int] = (),
        cap: int = CAP,
    ) -> bytes:
        answer = await ask_git(*self._at(), *args, env=self._env(env), data=data, cap=cap)
        if answer.exit_code != 0 and answer.exit_code not in also_ok:
            raise GitFailed(args, answer.exit_code, text(answer.stderr))
        return answer.stdout

    async def line(self, *args: str, env: Mapping[str, str] | None = None, data: bytes = b"") -> str:
        """The one line that git answers with."""
        return text(await self(*args, env=env, data=data)).strip()

    async def sha(self, revision: str) -> str | None:
        """The commit a ref or an id names, or None."""
        answer = await self.ask("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        return text(answer.stdout).strip() if answer.exit_code == 0 else None

    def _at(self) -> tuple[str, ...]:
        return ("-C", str(self.work_tree)) if self.work_tree is not None else ()


def text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def fields(raw: bytes) -> list[str]:
    """The parts of an answer with `-z`; bytes that are no UTF-8 stay recognisable and reversible."""
    return [os.fsdecode(part) for part in raw.split(b"\0") if part]


def _program_limiter() -> CapacityLimiter:
    try:
        return _programs.get()
    except LookupError:
        limiter = CapacityLimiter(AT_ONCE)
        _programs.set(limiter)
        return limiter
