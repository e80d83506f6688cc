"""What runs leave behind, and removing it. What has not landed is never removed."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from fleet.folders import RunFolder, all_runs
from fleet.ports import FleetError
from worktrees.clean import clean_run


@dataclass(frozen=True, slots=True)
class Leftover:
    """Of one run: what can go, and what stays."""

    run: str
    what: str
    kept: str
    size: int


async def tidy(state_dir: Path, *, apply: bool, runs: bool) -> list[Leftover]:
    """Look at every run that nobody is running; with `apply`, remove."""
    found = [await _of(folder, state_dir, apply=apply, runs=runs) for folder in all_runs(state_dir) if not folder.alive]
    return [left for left in found if left.what or left.kept]


async def _of(folder: RunFolder, state_dir: Path, *, apply: bool, runs: bool) -> Leftover:
    over = runs and _landed(folder)
    before = await clean_run(state_dir, folder.run, refs=over, dry_run=True)
    if before.in_use:
        return Leftover(folder.run, "", "its worktrees are in use", 0)
    parts, size = [], 0
    if before.worktrees:
        parts.append(f"{len(before.worktrees)} worktrees")
        size += sum(map(_size, before.worktrees))
    if before.refs:
        parts.append(f"{len(before.refs)} refs of landed work")
    forget = over and not before.kept
    if forget:
        parts.append("its journal and transcripts")
        size += _size(folder.path)
    if apply:
        await clean_run(state_dir, folder.run, refs=over)
        if forget:
            shutil.rmtree(folder.path)
    kept = f"{len(before.kept)} refs of work that has not landed" if before.kept else ""
    return Leftover(folder.run, ", ".join(parts), kept, size)


def _landed(folder: RunFolder) -> bool:
    try:
        return folder.state().ending == "landed"
    except FleetError:
        return False


def _size(path: Path) -> int:
    """Bytes below `path`; what vanishes meanwhile counts nothing."""
    total = 0
    for entry in path.rglob("*"):
        try:
            total += entry.lstat().st_size
        except OSError:
            continue
    return total
