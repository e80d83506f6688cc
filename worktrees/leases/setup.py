"""Prepares a worktree before work starts: the files of the setup command, and included files.

Runs once for each fingerprint of the command, the lock files at the commit, and the included files. This module decides
what to run and when to run it again. Each kind of lease keeps the result in a different way.
"""

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from anyio import to_thread

from fleet.core.base.ids import Sha
from fleet.core.base.paths import folders_above
from fleet.core.facts.facts import Failure, SetupRun
from fleet.errors import FleetError
from fleet.ports.agents import Extras
from fleet.ports.worktrees import EffectError, SetupFailedError
from worktrees.base.fs import make_folder
from worktrees.base.settings import MIB
from worktrees.git.program import Git, GitError, fields
from worktrees.leases.union_view import TreeView, is_git_name
from worktrees.sandbox.box import Box, Place
from worktrees.sandbox.checks import logged, result_of
from worktrees.target.target import Target

# ---- include ---------------------------------------------------------------------------------------------------------
# Included files: ignored files that workers need, listed in `.worktreeinclude` and the configuration.
#
# They are copied from the user's worktree once, when a run opens its worktrees, and from there into each worktree. Only
# files that git ignores are copied. Others would look like a worker's change.


NAMED_BY = ".worktreeinclude"
MAX_BYTES = 64 * MIB
MAX_FILES = 2_000


@dataclass(frozen=True, slots=True)
class Included:
    """The copies of the files."""

    folder: Path
    paths: tuple[str, ...] = ()
    digest: str = ""

    def copy_into(self, view: TreeView, folder: Path) -> None:
        """Copy them to a folder, except if `view` has a file at or above their path. Never follows a link."""
        for path in self.paths:
            if view.find(path) is None and not any(view.is_file(above) for above in folders_above(path)):
                source = self.folder / path
                _write(folder / path, source.read_bytes(), source.stat().st_mode)


async def gather_included(target: Target, patterns: Sequence[str], folder: Path) -> Included:
    """Copy the files from the user's worktree. Raises `FleetError` if there are too many."""
    rules = await to_thread.run_sync(_rules, target.root, tuple(patterns))
    if target.bare or not rules:
        return Included(folder)
    with TemporaryDirectory(prefix="fleet-include-") as temporary:
        file = Path(temporary, "rules")
        await to_thread.run_sync(file.write_bytes, rules)
        named = await _ask(target, "ls-files", "-z", "--others", "--ignored", f"--exclude-from={file}")
    if not named:
        return Included(folder)
    data = b"".join(b"./" + os.fsencode(path) + b"\0" for path in named)
    ignored = await _ask(target, "check-ignore", "-z", "--stdin", data=data)
    paths = sorted(path.removeprefix("./") for path in ignored)
    return await to_thread.run_sync(_copy, target.root, paths, folder)


def _rules(root: Path, patterns: Sequence[str]) -> bytes:
    """Return the rules of `.worktreeinclude` and of the configuration."""
    file = root / NAMED_BY
    rules = file.read_bytes() if file.is_file() and not file.is_symlink() else b""
    return b"\n".join(part for part in (rules, "\n".join(patterns).encode()) if part.strip())


async def _ask(target: Target, *args: str, data: bytes = b"") -> list[str]:
    env = {"GIT_LITERAL_PATHSPECS": "0"}
    answer = await target.checkout.ask(*args, env=env, data=data)
    if answer.exit_code not in {0, 1}:
        raise GitError(args, answer)
    return fields(answer.stdout)


def _copy(root: Path, paths: Sequence[str], folder: Path) -> Included:
    digest, copied, bytes_left = hashlib.sha256(), list[str](), MAX_BYTES
    for path in paths:
        if any(is_git_name(part) for part in path.split("/")):
            continue
        try:
            fd = os.open(root / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:  # a link, or removed since the listing
            continue
        with os.fdopen(fd, "rb") as source:
            status = os.fstat(source.fileno())
            if not stat.S_ISREG(status.st_mode):
                continue
            bytes_left -= status.st_size
            if bytes_left < 0 or len(copied) >= MAX_FILES:
                raise FleetError(
                    f"{NAMED_BY} and worktrees.include match more than {MAX_FILES} files or {MAX_BYTES // MIB} MiB",
                    hint="list fewer files, or use box.read_only to show folders to workers",
                )
            content = source.read()
        _write(folder / path, content, status.st_mode)
        copied.append(path)
        digest.update(repr((path, status.st_mode & 0o777, hashlib.sha256(content).hexdigest())).encode())
    return Included(folder, tuple(copied), digest.hexdigest() if copied else "")


def _write(path: Path, content: bytes, mode: int) -> None:
    make_folder(path.parent)
    path.write_bytes(content)
    path.chmod(mode & 0o777)


# ---- setup -----------------------------------------------------------------------------------------------------------


NAME = "the set-up"
LOG = "setup"
SHOWN = 4_000  # characters of output shown after a failure
CAP = 2 * MIB  # of its output; the middle is left out


@dataclass(slots=True)
class Setup:
    """The setup command of one run."""

    box: Box
    git: Git
    included: Included
    base: Sha
    """The commit that the run started from, with files from its operator, not from a worker."""
    from_base: bool = False
    """Whether commits with the same fingerprint as the base get the files made on the base."""
    must_pass: bool = True
    """Whether a failed setup command makes the worktree unusable. A rehearsal continues without its files."""
    finished: list[SetupRun] = field(default_factory=list)
    """The runs of the setup command that were not reported yet."""
    _fingerprints: dict[Sha, str] = field(default_factory=dict)
    _failures: dict[str, str] = field(default_factory=dict)
    """The failures of the setup command, by fingerprint."""

    @property
    def is_needed(self) -> bool:
        return bool(self.box.settings.worktrees.setup.strip()) or bool(self.included.paths)

    async def fingerprint(self, commit: Sha) -> str:
        """Return a digest of all inputs of the setup command on a commit."""
        if commit not in self._fingerprints:
            names = self.box.settings.worktrees.lock_files
            locks = await self.git("ls-tree", "-z", commit, "--", *names) if names else b""
            parts = [self.box.settings.worktrees.setup, self.included.digest, hashlib.sha256(locks).hexdigest()]
            self._fingerprints[commit] = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
        return self._fingerprints[commit]

    def has_network(self, commit: Sha) -> bool:
        """Whether the setup command has the network on this commit, beyond the access of all commands."""
        allowed = self.box.settings.worktrees.setup_network
        return allowed == "all" or (allowed == "base" and commit == self.base)

    async def origin(self, commit: Sha) -> Sha:
        """Return the commit to run the setup command of `commit` on.

        If the network is limited to the base, or if requested, this is the base when both commits have the same inputs
        of the setup command.
        """
        if self.box.settings.worktrees.setup_network != "base" and not self.from_base:
            return commit
        return self.base if await self.fingerprint(commit) == await self.fingerprint(self.base) else commit

    async def failure(self, commit: Sha) -> str | None:
        """Return how the setup command failed on a commit, if it did."""
        return self._failures.get(await self.fingerprint(commit))

    async def run(self, place: Place, commit: Sha) -> None:
        """Run the setup command on a commit in the box, if there is one. Raises `EffectError` if it fails."""
        settings, command = self.box.settings, self.box.settings.worktrees.setup
        if not command.strip():
            return
        if settings.on_setup is not None:
            settings.on_setup(command)
        has_network = self.has_network(commit)
        box = self.box.extended(Extras(network=True)) if has_network else self.box
        done = await box.run(place, box.shell(command), timeout_s=settings.worktrees.setup_timeout_s, cap=CAP)
        check = await logged(await result_of(NAME, command, done), settings.check_logs, LOG, done.stdout)
        self.finished.append(SetupRun(commit=commit, check=check, network=has_network or settings.box.network))
        if not check.passed:
            how = (
                f"took longer than {settings.worktrees.setup_timeout_s:g} s"
                if check.timed_out
                else f"failed with exit code {check.exit_code}"
            )
            summary = f"the setup command {how}"
            self._failures[await self.fingerprint(commit)] = summary
            if self.must_pass:
                evidence = "\n".join(dict.fromkeys((*check.causes, *check.output[-SHOWN:].splitlines())))
                failure = Failure(kind="configuration", summary=summary, evidence=evidence)
                if await self.fingerprint(commit) != await self.fingerprint(self.base):
                    raise SetupFailedError(failure, check)
                raise EffectError(failure)


def state_of(root: Path, paths: Iterable[str]) -> tuple[str, int]:
    """Return a digest of all entries below some paths in `root`, and their number, without reading a file.

    The kernel sets the change time, and a worker can't reset it, so every change is noticed.
    """
    digest, entries = hashlib.sha256(), 0
    pending = sorted(paths, reverse=True)
    while pending:
        path = pending.pop()
        try:
            status = (root / path).lstat()
        except OSError:
            digest.update(f"{path}\0-".encode("utf-8", "surrogateescape"))
            continue
        entries += 1
        fields = (status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        digest.update(repr((path, *fields)).encode("utf-8", "surrogateescape"))
        if stat.S_ISDIR(status.st_mode):
            try:
                names = sorted(os.listdir(root / path), reverse=True)  # noqa: PTH208 - names only, and many
            except OSError:
                continue
            pending += [f"{path}/{name}" for name in names]
    return digest.hexdigest(), entries
