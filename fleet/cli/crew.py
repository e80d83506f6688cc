"""Whether each worker of the configuration can work on this machine: its program, its hosts, its settings."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from agents.claude_code import program_of
from agents.registry import problems_of
from agents.settings import WorkerSettings
from fleet.app import Fleet
from fleet.ports import FleetError
from worktrees.surroundings import SYSTEM_PATH

Look = tuple[str, str, str]
"""A worker's name, what is said of it, and what to do where it can't work."""


def look_at_workers(fleet: Fleet) -> Iterator[Look]:
    """What there is to say of each."""
    try:
        workers = fleet.staff()
    except FleetError as error:
        yield "workers", "can't be made", str(error)
        return
    for name, own in workers.items():
        wrong = "; ".join(problems_of(name, own))
        yield name, _said(own, fleet), wrong or _missing(own, fleet)


def _said(own: WorkerSettings, fleet: Fleet) -> str:
    parts = [own.kind]
    if own.kind != "command":
        parts.append(" → ".join(own.models) or fleet.config.models.worker)
    if own.command:
        parts.append(f"runs {own.command[0]}")
    elif own.kind == "claude-code" and (program := program_of(own)):
        parts.append(f"runs {program}")
    if own.hosts:
        parts.append(f"may ask {', '.join(own.hosts)}")
    if own.extras.network:
        parts.append("with the network")
    return ", ".join(parts)


def _missing(own: WorkerSettings, fleet: Fleet) -> str:
    """What its program lacks; empty where nothing is."""
    if own.kind == "claude-code":
        name = (own.command or ("claude",))[0]
        return "" if program_of(own) else f"{name} is not in PATH; install it, or name it in workers.NAME.command"
    if own.kind != "command" or not own.command:
        return ""
    program, hands = own.command[0], fleet.hands()
    if "/" in program and not program.startswith("/"):
        return ""  # a file of the repository
    if hands.sandbox == "none":
        found = shutil.which(program)
    else:
        found = shutil.which(program, path=os.pathsep.join((*own.extras.path, *map(str, hands.path), *SYSTEM_PATH)))
    if found is None:
        return f"{program} is not found in the box's PATH; add its folder to workers.NAME.path and read_only"
    shown = (Path("/usr"), *(Path("/", name) for name in ("bin", "sbin", "lib")), *map(Path, own.extras.read_only))
    if hands.sandbox == "none" or any(Path(found).is_relative_to(place) for place in (*shown, *hands.read_only)):
        return ""
    return f"{found} is not shown in the box; add its folder to workers.NAME.read_only"
