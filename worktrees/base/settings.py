"""The settings of the worktrees: one frozen value, made from the configuration."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fleet.core.facts.facts import SetupNetwork

Sandbox = Literal["bubblewrap", "none"]
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
    sandbox: Sandbox
    read_only: tuple[Path, ...]
    """Folders and files of this machine that the box shows, each at its own path."""
    path: tuple[Path, ...]
    """Entries before the box's PATH."""
    environment: Mapping[str, str]
    network: bool
    syscall_filter: bool
    """Whether commands run under the filter of `seccomp.py`."""
    limits: BoxLimits
    box_commands: int
    """How many commands and file operations of workers may run at once."""
    check_slots: int
    """How many checks may run at once."""
    max_file_bytes: int
    max_files: int
    expected_tests: bool
    """Whether checks ask pytest which tests it ran."""
    protected: tuple[str, ...]
    """Files that verdicts, git or other agents depend on: only a subtask whose `touches` names one may change it."""
    author: str
    """The author of all commits; empty: each worker with its model."""
    email: str
    lease: LeaseKind | Literal["auto"]
    setup: str
    """The command that makes a worktree ready for work; empty where there is none."""
    setup_s: float
    setup_network: SetupNetwork
    """Where the set-up command has the network: nowhere, on the commit a run starts from, or on every commit."""
    lock_files: tuple[str, ...]
    """When one of these changes, the set-up command runs again."""
    include: tuple[str, ...]
    """Patterns of ignored files to copy from the user's worktree, besides those of `.worktreeinclude`."""
    first_port: int
    ports: int
    """For each worktree."""
    max_pool_bytes: int | None
    on_command: Callable[[float], None] | None = None
    """Called with the seconds that each command of a worker took."""
    on_setup: Callable[[str], None] | None = None
    """Called with the set-up command when it begins."""
    check_logs: Path | None = None
    """The folder for the whole output of checks and set-ups, one file for each."""
    output_bytes: int = 64 * 1024
    """The most that is kept of one command's output; the middle is left out."""
