"""What the worktrees are given of the configuration: the sections that they work by, whole."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fleet.ports.settings import BoxSection, ChecksSection, GitSection, WorktreesSection

LeaseKind = Literal["overlay", "pool"]

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class BoxLimits:
    """The most that one command in the box may use, as the kernel and `resource_monitor.py` enforce it.

    Only fields that no key sets have a default.
    """

    memory_bytes: int
    disk_bytes: int
    processes: int = 1024
    open_files: int = 4096
    file_bytes: int = 1024 * MIB
    tmp_bytes: int = 512 * MIB
    home_bytes: int = 128 * MIB
    disk_files: int = 500_000
    free_bytes: int = 512 * MIB
    """Where the disk has less room left, commands that could write to it are ended."""


@dataclass(frozen=True, slots=True)
class WorktreeSettings:
    """Everything `worktrees` needs of the configuration. Only fields that no key sets have a default."""

    state_dir: Path
    box: BoxSection
    """With what the box shows of its tool chains."""
    worktrees: WorktreesSection
    checks: ChecksSection
    git: GitSection
    limits: BoxLimits
    on_command: Callable[[float], None] | None = None
    """Called with the seconds that each command of a worker took."""
    on_setup: Callable[[str], None] | None = None
    """Called with the set-up command when it begins."""
    check_logs: Path | None = None
    """The folder for the whole output of checks and set-ups, one file for each."""
    output_bytes: int = 64 * 1024
    """The most that is kept of one command's output; the middle is left out."""

    @property
    def box_commands(self) -> int:
        """How many commands and file operations of workers may run at once."""
        return self.box.commands or 4 * (os.cpu_count() or 1)

    @property
    def check_slots(self) -> int:
        """How many checks may run at once."""
        return self.checks.slots or os.cpu_count() or 1

    @property
    def max_file_bytes(self) -> int:
        return self.box.max_file_mb * MIB
