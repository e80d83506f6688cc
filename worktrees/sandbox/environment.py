"""The environment of a command: what it finds in the box, and what is given to it where there is none."""

import os
from collections.abc import Mapping
from pathlib import Path

from worktrees.settings import HandSettings

HOME = "/home/worker"
SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
HIGHEST_PORT = 65_536


def environment_of(settings: HandSettings) -> dict[str, str]:
    return {
        "PATH": _path(settings),
        "HOME": HOME,
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "TMPDIR": "/tmp",  # noqa: S108 - the box's own
        "PYTHONDONTWRITEBYTECODE": "1",
        **settings.environment,
    }


def reporting(environment: Mapping[str, str], at: Path) -> str:
    """Options for pytest, besides those that it is given anyway."""
    return f"{environment.get('PYTEST_ADDOPTS', '')} --junitxml={at} -o junit_family=xunit1".strip()


def bare_environment(settings: HandSettings, scratch_folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Without a sandbox: the same environment, with a home and a scratch folder beside the worktree."""
    home, scratch = scratch_folder / "home", scratch_folder / "tmp"
    for folder in (home, scratch):
        folder.mkdir(parents=True, exist_ok=True)
    return {**environment, "HOME": str(home), "TMPDIR": str(scratch), **settings.environment}


def port_environment(settings: HandSettings, number: int) -> dict[str, str]:
    """The first port of a worktree's own range. Numbers far beyond what there is begin again."""
    room = max(1, (HIGHEST_PORT - settings.first_port) // settings.ports)
    return {"FLEET_PORT": str(settings.first_port + (number - 1) % room * settings.ports)}


def _path(settings: HandSettings) -> str:
    return os.pathsep.join((*map(str, settings.path), *SYSTEM_PATH))
