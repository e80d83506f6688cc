"""What the hands are told by the configuration: one frozen value, passed down in the smallest slice."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Sandbox = Literal["bubblewrap", "none"]
LeaseKind = Literal["overlay", "pool"]

MIB = 1024 * 1024

PROTECTED = (
    "**/.gitattributes",
    "**/.gitmodules",
    "**/AGENTS.md",
    "**/CLAUDE.md",
    ".cursor/**",
    ".github/**",
    ".gitlab-ci.yml",
    "**/conftest.py",
    "**/pytest.ini",
    "**/tox.ini",
    "**/sitecustomize.py",
)
"""What a verdict, git or another agent rests on: changed only by a subtask whose `touches` names the very file."""


@dataclass(frozen=True, slots=True)
class BoxLimits:
    """What one command in the box may use: what the kernel holds it to, and below that what `guard.py` does."""

    processes: int = 1024
    open_files: int = 4096
    file_bytes: int = 1024 * MIB
    tmp_bytes: int = 512 * MIB
    home_bytes: int = 128 * MIB
    memory_bytes: int = 8192 * MIB
    disk_bytes: int = 8192 * MIB
    disk_files: int = 500_000
    free_bytes: int = 512 * MIB
    """Where less is left on the disk, commands that could write to it are ended."""


@dataclass(frozen=True, slots=True)
class HandSettings:
    """Everything `worktrees` needs to know of the configuration."""

    state_dir: Path
    sandbox: Sandbox = "bubblewrap"
    read_only: tuple[Path, ...] = ()
    """Folders and files of this machine that the box shows, each at its own path."""
    path: tuple[Path, ...] = ()
    """Entries before the box's PATH."""
    environment: Mapping[str, str] = field(default_factory=dict)
    network: bool = False
    syscall_filter: bool = True
    """Whether commands run under the filter of `seccomp.py`."""
    box_commands: int = 32
    """Commands and file operations of workers that may run at once."""
    check_slots: int = field(default_factory=lambda: os.cpu_count() or 1)
    on_command: Callable[[float], None] | None = None
    """Who is told how many seconds each command of a worker took."""
    check_logs: Path | None = None
    """Where all that checks print is kept, one file a check."""
    expected_tests: bool = True
    """Whether checks ask pytest which tests it ran."""
    max_file_bytes: int = 10 * MIB
    max_files: int = 200_000
    protected: tuple[str, ...] = PROTECTED
    email: str = "fleet@localhost"
    output_bytes: int = 64 * 1024
    """Of one command's output; the middle is left out."""
    file_s: float = 30.0
    """How long reading or writing one file may take."""
    cleanup_s: float = 30.0
    limits: BoxLimits = BoxLimits()
    lease: LeaseKind | Literal["auto"] = "auto"
    setup: str = ""
    """The command that makes a worktree ready for work; empty where there is none."""
    setup_s: float = 1800.0
    lock_files: tuple[str, ...] = ()
    """When one of these changes, what the set-up command made is made anew."""
    include: tuple[str, ...] = ()
    """Patterns of ignored files to copy from the user's worktree, besides those of `.worktreeinclude`."""
    first_port: int = 20_000
    ports: int = 10
    """For each worktree."""
    sparse: bool = False
    """Whether a worktree of the pool holds only the folders that its subtask is about."""
    max_pool_bytes: int | None = None
