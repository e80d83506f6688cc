"""What a machine has and lacks for running a fleet, each with the fix."""

import platform
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import anyio

from fleet.app import Fleet
from fleet.cli.crew import look_at_workers
from fleet.config import Loaded
from fleet.folders import make_state_dir
from fleet.ports import FleetError
from fleet.settings import Config
from worktrees.git import ask_git, text
from worktrees.proof import prove
from worktrees.seccomp import filter_program
from worktrees.settings import HandSettings
from worktrees.target import inspect
from worktrees.trial import choose

GIT_FLOOR = (2, 39)
FREE_GB = 2.0
REACH_S = 5.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    what: str
    ok: bool
    says: str
    fix: str = ""


async def examine(config: Config, environ: Mapping[str, str], repository: Path) -> list[Finding]:
    """Look at everything a run needs. Changes nothing but for a probe file in the state directory."""
    fleet = Fleet(Loaded(config, {}), environ)
    return [
        _python(),
        await _git(),
        await _sandbox(fleet),
        await _model(fleet),
        _state(fleet),
        await _leases(fleet),
        _disk(fleet),
        await _repository(repository),
        *_workers(fleet),
    ]


def _python() -> Finding:
    return Finding("python", ok=True, says=f"{sys.version.split()[0]} at {sys.executable}")


async def _git() -> Finding:
    fix = "install git 2.39 or newer: apt-get install git"
    if shutil.which("git") is None:
        return Finding("git", ok=False, says="not found", fix=fix)
    said = text((await ask_git("--version")).stdout).strip()
    version = tuple(map(int, re.findall(r"\d+", said)[:2]))
    return Finding("git", ok=version >= GIT_FLOOR, says=said, fix="" if version >= GIT_FLOOR else fix)


async def _sandbox(fleet: Fleet) -> Finding:
    hands = fleet.hands()
    if hands.sandbox == "none":
        return Finding("sandbox", ok=True, says="NONE, as configured: commands that a model wrote run as you")
    try:
        leaks = await prove(hands)
    except FleetError as error:
        return Finding("sandbox", ok=False, says="not available", fix=str(error))
    if leaks:
        return Finding("sandbox", ok=False, says="; ".join(leaks), fix="see docs/sandbox.md; no run begins like this")
    says = "bubblewrap: tried to read, write and connect outside, and could not"
    return Finding("sandbox", ok=True, says=f"{says}; {_filter(hands)}")


def _filter(hands: HandSettings) -> str:
    if not hands.syscall_filter:
        return "system calls are not filtered, as configured"
    if filter_program() is None:
        return f"system calls are not filtered: those of {platform.machine()} are not known"
    return "system calls are filtered"


async def _model(fleet: Fleet) -> Finding:
    url = fleet.config.models.base_url
    try:
        fleet.api_key()
    except FleetError as error:
        return Finding("model", ok=False, says=url, fix=str(error))
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    try:
        with anyio.fail_after(REACH_S):
            async with await anyio.connect_tcp(host, port):
                pass
    except (OSError, TimeoutError):
        return Finding("model", ok=False, says=f"{url} can't be reached", fix="check the network, or --base-url")
    name = fleet.config.models.api_key_env
    key = f"with the key in {name}" if fleet.environ.get(name, "").strip() else f"without a key: {name} is not set"
    return Finding("model", ok=True, says=f"{url} was reached, {key}; it was not called")


def _workers(fleet: Fleet) -> Iterator[Finding]:
    for name, said, fix in look_at_workers(fleet):
        yield Finding("worker", ok=not fix, says=f"{name}: {said}", fix=fix.replace("workers.NAME", f"workers.{name}"))


def _state(fleet: Fleet) -> Finding:
    try:
        make_state_dir(fleet.state_dir)
    except FleetError as error:
        return Finding("state", ok=False, says=str(fleet.state_dir), fix=str(error))
    return Finding("state", ok=True, says=f"{fleet.state_dir} is writable")


async def _leases(fleet: Fleet) -> Finding:
    try:
        chosen = await choose(fleet.hands(), fleet.state_dir)
    except FleetError as error:
        return Finding("worktrees", ok=False, says="not as configured", fix=str(error))
    return Finding("worktrees", ok=True, says=f"{chosen.kind} ({chosen.why})")


def _disk(fleet: Fleet) -> Finding:
    path = fleet.state_dir
    here = next(folder for folder in (path, *path.parents) if folder.exists())
    free = shutil.disk_usage(here).free / 1e9
    fix = "" if free >= FREE_GB else "free some space, or choose another disk with FLEET_STATE_DIR; `fleet clean` helps"
    return Finding("disk", ok=free >= FREE_GB, says=f"{free:.1f} GB free for worktrees", fix=fix)


async def _repository(path: Path) -> Finding:
    if shutil.which("git") is None:
        return Finding("repository", ok=False, says=f"{path} can't be read without git")
    try:
        target = await inspect(path)
    except FleetError as error:
        return Finding("repository", ok=False, says=str(path), fix=str(error))
    notes = f" ({'; '.join(target.warnings)})" if target.warnings else ""
    return Finding("repository", ok=True, says=f"{target.root} at {target.base_name} {target.base[:7]}{notes}")
