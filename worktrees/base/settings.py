"""The sections of the configuration that the worktrees use."""

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
    """The limits of one command in the box, as the kernel and `resource_monitor.py` enforce them.

    Only fields without a key have a default.
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
    """If less free space is left on the disk, commands that could write to it are ended."""


@dataclass(frozen=True, slots=True)
class WorktreeSettings:
    """The configuration that `worktrees` needs. Only fields without a key have a default."""

    state_dir: Path
    box: BoxSection
    """Includes the tool chains that the box shows."""
    worktrees: WorktreesSection
    checks: ChecksSection
    git: GitSection
    limits: BoxLimits
    on_command: Callable[[float], None] | None = None
    """Called with the duration in seconds of each worker command."""
    on_setup: Callable[[str], None] | None = None
    """Called with the setup command when it starts."""
    check_logs: Path | None = None
    """The folder for the full output of checks and setup commands, one file for each."""
    output_bytes: int = 64 * 1024
    """The limit on stored output of one command. The middle is left out."""

    @property
    def box_commands(self) -> int:
        """The limit on concurrent commands and file operations of workers."""
        return self.box.commands or 4 * (os.cpu_count() or 1)

    @property
    def check_slots(self) -> int:
        """The limit on concurrent checks."""
        return self.checks.slots or os.cpu_count() or 1

    @property
    def max_file_bytes(self) -> int:
        return self.box.max_file_mb * MIB
