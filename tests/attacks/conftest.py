"""Each attack is tried twice: without any defence, to see that it works, and then in the box.

Without a box the same command runs as the tests themselves do, in folders of its own; it is chosen so that it does no
harm there. On a machine without a sandbox these tests fail: none of them is skipped.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleet.ports.agents import Dialogue
from tests.settings import with_values
from tests.worktrees.conftest import (
    anyio_backend,
    bench,
    lease_kind,
    open_bench,
    product_settings,
    python_shown,
    repository,
    settings,
    tmp_path,
)
from worktrees.base.settings import BoxLimits, WorktreeSettings
from worktrees.sandbox.box import Box, Place
from worktrees.sandbox.launcher import Launcher

__all__ = ["anyio_backend", "bench", "lease_kind", "open_bench", "repository", "settings", "tmp_path"]

CANARY = "canary-5b1e"
PROBE_S = 50.0


@dataclass(frozen=True)
class Tried:
    """The result of an attack."""

    exit_code: int
    output: str
    timed_out: bool

    @property
    def worked(self) -> bool:
        return self.exit_code == 0


@dataclass(frozen=True)
class Arena:
    """A worktree to attack from, and beside it the files that must not be reached."""

    home: Path
    settings: WorktreeSettings

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
        """Try the attack without any defence."""
        return await self._try(with_values(self.settings, {"sandbox": "none"}), script, args, timeout_s)

    async def within(
        self,
        script: str,
        *args: object,
        timeout_s: float = PROBE_S,
        limits: BoxLimits | None = None,
        shown: tuple[Path, ...] = (),
        dialogue: Dialogue | None = None,
    ) -> Tried:
        """Try the attack in the box."""
        values = {"read_only": (*self.settings.box.read_only, *shown), "limits": limits or self.settings.limits}
        changed = with_values(self.settings, values)
        return await self._try(changed, script, args, timeout_s, dialogue)

    async def _try(
        self,
        settings: WorktreeSettings,
        script: str,
        args: tuple[object, ...],
        timeout_s: float,
        dialogue: Dialogue | None = None,
    ) -> Tried:
        place = Place(self.tree, self.home / "scratch", "attack")
        argv = ("bash", "-c", script, "attack", *map(str, args))
        with closing(Launcher()) as launcher:
            box = Box(settings, starter=launcher)
            done = await box.run(place, argv, timeout_s=timeout_s, cap=64 * 1024, dialogue=dialogue)
        return Tried(done.shell_code, done.text, done.timed_out)


@pytest.fixture
def arena(tmp_path: Path) -> Arena:
    arena = Arena(
        tmp_path,
        product_settings(
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
"""Bubblewrap as a careless person would start it."""


def bare(*argv: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*BARE_BOX, *argv], capture_output=True, check=False)


def running(*argv: str) -> list[int]:
    """The processes of the machine with exactly this command line."""
    wanted = b"".join(argument.encode() + b"\0" for argument in argv)
    return [int(pid) for pid, line in command_lines() if line == wanted]


def command_lines() -> Iterator[tuple[str, bytes]]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(FileNotFoundError, ProcessLookupError):
            yield path.parent.name, path.read_bytes()
