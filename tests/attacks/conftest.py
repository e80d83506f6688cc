"""Attacks are tried twice: where nothing holds them off, to see that they work, and then in the box.

Without a box the same command runs as the tests themselves do, in folders of its own; it is chosen so that it does no
harm there. A machine without a sandbox fails these tests: nothing here is left out.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.worktrees.conftest import (
    anyio_backend,
    bench,
    lease_kind,
    open_bench,
    python_shown,
    repository,
    settings,
    tmp_path,
)
from worktrees.box import Box, Place
from worktrees.desk import exit_code
from worktrees.forks import forks
from worktrees.marks import this_manager
from worktrees.settings import BoxLimits, HandSettings

__all__ = ["anyio_backend", "bench", "lease_kind", "open_bench", "repository", "settings", "tmp_path"]

CANARY = "canary-5b1e"
PROBE_S = 50.0


@dataclass(frozen=True)
class Tried:
    """What came of an attack."""

    exit_code: int
    output: str
    timed_out: bool

    @property
    def worked(self) -> bool:
        return self.exit_code == 0


@dataclass(frozen=True)
class Arena:
    """A worktree to attack from, and beside it what must not be reached."""

    home: Path
    settings: HandSettings

    @property
    def tree(self) -> Path:
        return self.home / "tree"

    @property
    def elsewhere(self) -> Path:
        return self.home / "elsewhere"

    @property
    def secret(self) -> Path:
        return self.elsewhere / "secret"

    async def without(self, script: str, *args: object, timeout_s: float = PROBE_S) -> Tried:
        """The attack with nothing to hold it off."""
        return await self._try(replace(self.settings, sandbox="none"), script, args, timeout_s)

    async def within(
        self,
        script: str,
        *args: object,
        timeout_s: float = PROBE_S,
        limits: BoxLimits | None = None,
        shown: tuple[Path, ...] = (),
    ) -> Tried:
        """The same in the box."""
        changed = replace(self.settings, limits=limits or BoxLimits(), read_only=(*self.settings.read_only, *shown))
        return await self._try(changed, script, args, timeout_s)

    async def _try(self, settings: HandSettings, script: str, args: tuple[object, ...], timeout_s: float) -> Tried:
        place = Place(self.tree, self.home / "scratch", "attack")
        argv = ("bash", "-c", script, "attack", *map(str, args))
        with forks(this_manager()) as starter:
            done = await Box(settings, starter=starter).run(place, argv, timeout_s=timeout_s, cap=64 * 1024)
        return Tried(exit_code(done), done.stdout.decode("utf-8", "replace"), done.timed_out)


@pytest.fixture
def arena(tmp_path: Path) -> Arena:
    arena = Arena(
        tmp_path,
        HandSettings(
            state_dir=tmp_path / "state", read_only=python_shown(), path=(Path(sys.prefix, "bin"), Path("/usr/bin"))
        ),
    )
    arena.tree.mkdir()
    arena.elsewhere.mkdir()
    arena.secret.write_text(CANARY, encoding="utf-8")
    return arena


BARE_BOX = (
    *(
        "bwrap",
        "--unshare-user",
        "--unshare-pid",
        "--cap-drop",
        "ALL",
        "--clearenv",
        "--setenv",
        "PATH",
        "/usr/bin:/bin",
    ),
    *("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),  # noqa: S108 - inside
)
"""Bubblewrap as one would start it without having been attacked before."""


def bare(*argv: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*BARE_BOX, *argv], capture_output=True, check=False)


def running(*argv: str) -> list[int]:
    """The processes of the machine with this very command line."""
    wanted = b"".join(argument.encode() + b"\0" for argument in argv)
    return [int(pid) for pid, line in command_lines() if line == wanted]


def command_lines() -> Iterator[tuple[str, bytes]]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(FileNotFoundError, ProcessLookupError):
            yield path.parent.name, path.read_bytes()
