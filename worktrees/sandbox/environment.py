"""The environment of a command: its variables inside the box, or without one, and its programs."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from worktrees.base.settings import WorktreeSettings

HOME = "/home/worker"
SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
HIGHEST_PORT = 65_536


def box_environment(settings: WorktreeSettings) -> dict[str, str]:
    return {
        "PATH": os.pathsep.join((*map(str, settings.path), *SYSTEM_PATH)),
        "HOME": HOME,
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "TMPDIR": "/tmp",  # noqa: S108 - the box's own
        "PYTHONDONTWRITEBYTECODE": "1",
        **settings.environment,
    }


def bare_environment(settings: WorktreeSettings, scratch: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Without a sandbox: the same environment, with a home and a temporary folder beside the worktree."""
    home, temporary = scratch / "home", scratch / "tmp"
    for folder in (home, temporary):
        folder.mkdir(parents=True, exist_ok=True)
    return {**environment, "HOME": str(home), "TMPDIR": str(temporary), **settings.environment}


def port_environment(settings: WorktreeSettings, number: int) -> dict[str, str]:
    """The first port of a worktree's own range. Numbers beyond the last range start over."""
    ranges = max(1, (HIGHEST_PORT - settings.first_port) // settings.ports)
    return {"FLEET_PORT": str(settings.first_port + (number - 1) % ranges * settings.ports)}


def has_program(settings: WorktreeSettings, name: str) -> bool:
    """Whether a command in the box finds a program of this name, before anything is set up in a worktree."""
    return shutil.which(name, path=box_environment(settings)["PATH"]) is not None
