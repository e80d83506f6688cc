"""What runs leave behind, by kind, and removing it. What has not landed is never removed."""

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fleet.folders import RunFolder, all_runs
from fleet.ports import FleetError
from worktrees.clean import Leftovers, Part, StoreLeft, clean_run, remove_store, stores
from worktrees.wipe import size_of


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an operator asked for."""

    apply: bool = False
    runs: bool = False
    """Also forget ended runs whose work has all landed."""
    ended: bool = False
    """Also forget the other ended runs; commits that did not land stay in the store."""
    max_bytes: int | None = None
    """Remove no more than it takes for everything of ours to fit, what was idle longest first."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """Of one run or store: what can go, and what stays."""

    of: str
    used_at: float
    parts: tuple[Part, ...] = ()
    kept: str = ""
    stays: bool = False
    """Whether it stays because all fits without removing it."""

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)


@dataclass(frozen=True, slots=True)
class Tidied:
    """Everything that was found."""

    left: tuple[Leftover, ...]
    total: int
    """Bytes of all that is ours, before anything was removed."""

    @property
    def going(self) -> tuple[Leftover, ...]:
        return tuple(left for left in self.left if left.parts and not left.stays)

    @property
    def kinds(self) -> tuple[Part, ...]:
        """All that goes, by kind; what takes most room first."""
        found: dict[str, Part] = {}
        for part in (part for left in self.going for part in left.parts):
            there = found.get(part.kind, Part(part.kind, 0, 0))
            found[part.kind] = Part(part.kind, there.number + part.number, there.size + part.size)
        return tuple(sorted(found.values(), key=lambda part: -part.size))

    @property
    def size(self) -> int:
        return sum(left.size for left in self.going)


async def tidy(state_dir: Path, wanted: Wanted) -> Tidied:
    """Look at everything that nobody uses; with `apply`, remove it."""
    folders = {folder.run: folder for folder in all_runs(state_dir)}
    found = [await _of_run(folder, state_dir, wanted) for folder in folders.values() if not folder.alive]
    homes = {store.home.name: store for store in await stores(state_dir)}
    found += [_of_store(store, folders) for store in homes.values()]
    listed = [left for left in found if left.parts or left.kept]
    total = await size_of(state_dir)
    if wanted.max_bytes is not None:
        listed = _within(listed, total - wanted.max_bytes)
    if wanted.apply:
        for left in listed:
            if left.stays or not left.parts:
                continue
            kind, _, name = left.of.partition(" ")
            if kind == "run":
                await _remove(folders[name], state_dir, wanted)
            else:
                await remove_store(homes[name].home)
    return Tidied(tuple(listed), total)


def _within(found: Iterable[Leftover], excess: int) -> list[Leftover]:
    """What was used last stays, as soon as enough goes."""
    listed = []
    for left in sorted(found, key=lambda left: left.used_at):
        listed.append(replace(left, stays=excess <= 0))
        if left.parts:
            excess -= left.size
    return listed


async def _of_run(folder: RunFolder, state_dir: Path, wanted: Wanted) -> Leftover:
    name, used_at = f"run {folder.run}", folder.journal.stat().st_mtime
    before = await clean_run(state_dir, folder.run, refs=_over(folder, wanted), dry_run=True)
    if before.in_use:
        return Leftover(name, used_at, kept="its worktrees are in use")
    parts = list(before.parts)
    if before.refs:
        parts.append(Part("refs of landed work", len(before.refs), 0))
    if _forgets(folder, before, wanted):
        parts += await _of_folder(folder)
    kept = ""
    if before.kept:
        where = ", ".join(str(home / "fleet.git") for home in before.homes)
        refs = _counted(Part("refs of work that has not landed", len(before.kept), 0))
        kept = f"{refs}, in {where}"
    return Leftover(name, used_at, tuple(parts), kept)


async def _of_folder(folder: RunFolder) -> list[Part]:
    """What a run is remembered by."""
    found = []
    known = {"transcripts": folder.transcripts, "logs of checks": folder.checks}
    rest = await size_of(folder.path)
    for kind, path in known.items():
        if path.is_dir():
            size = await size_of(path)
            rest -= size
            found.append(Part(kind, sum(1 for each in path.rglob("*") if each.is_file()), size))
    return [Part("journals", 1, max(0, rest)), *found]


def _of_store(store: StoreLeft, folders: dict[str, RunFolder]) -> Leftover:
    name = f"store {store.home.name}"
    if store.idle:
        return Leftover(name, store.used_at, (Part("stores", 1, store.size),))
    forgotten = [run for run in store.runs if run not in folders]
    if not forgotten:
        return Leftover(name, store.used_at)
    why = f"work of runs that were forgotten: {', '.join(forgotten)}, in {store.home / 'fleet.git'}"
    return Leftover(name, store.used_at, kept=why)


async def _remove(folder: RunFolder, state_dir: Path, wanted: Wanted) -> None:
    if folder.alive:  # since we looked
        return
    after = await clean_run(state_dir, folder.run, refs=_over(folder, wanted))
    if not after.in_use and _forgets(folder, after, wanted):
        shutil.rmtree(folder.path)


def _forgets(folder: RunFolder, left: Leftovers, wanted: Wanted) -> bool:
    return _over(folder, wanted) and (wanted.ended or not left.kept)


def _over(folder: RunFolder, wanted: Wanted) -> bool:
    """Whether a run is one that was asked to be forgotten."""
    if not wanted.runs and not wanted.ended:
        return False
    try:
        ending = folder.state().ending
    except FleetError:
        return False
    return ending == "landed" or (wanted.ended and ending is not None)


def shown(tidied: Tidied, wanted: Wanted) -> Sequence[str]:
    """Lines for a person."""
    if not tidied.left:
        return ["nothing was left behind"]
    lines = [_line(left, wanted) for left in tidied.left]
    width = max((len(part.kind) for part in tidied.kinds), default=0)
    lines += [f"  {part.kind:<{width}}  {part.number:>6}  {part.size / 1e6:>9.1f} MB" for part in tidied.kinds]
    flags = [flag for flag, given in (("--runs", wanted.runs), ("--ended", wanted.ended)) if given]
    flags += [f"--max-gb {wanted.max_bytes / 1e9:g}"] if wanted.max_bytes is not None else []
    command = " ".join(("fleet clean --apply", *flags))
    after = "" if wanted.apply else f" in all; `{command}` removes it"
    lines.append(f"{tidied.size / 1e6:.1f} MB of {tidied.total / 1e6:.1f}{after}")
    over = tidied.total - tidied.size - (wanted.max_bytes or 0)
    if wanted.max_bytes is not None and over > 0:
        lines.append(f"{over / 1e6:.1f} MB more than wanted are in use, or hold what has not landed")
    return lines


def _line(left: Leftover, wanted: Wanted) -> str:
    kept = f"; kept: {left.kept}" if left.kept else ""
    what = ", ".join(map(_counted, left.parts))
    if not what:
        return f"{left.of}: nothing to remove{kept}"
    verb = "stays, there is room" if left.stays else "removed" if wanted.apply else "would go"
    return f"{left.of}: {what} {verb}{kept}"


def _counted(part: Part) -> str:
    """`1 journal`, `2 logs of checks`: kinds are named in the plural."""
    noun, of, what = part.kind.partition(" of ")
    return f"{part.number} {noun.removesuffix('s') if part.number == 1 else noun}{of}{what}"


def as_data(tidied: Tidied, wanted: Wanted) -> dict[str, object]:
    """For a script."""
    return {
        "applied": wanted.apply,
        "bytes": tidied.size,
        "of": tidied.total,
        "kinds": [{"kind": part.kind, "number": part.number, "bytes": part.size} for part in tidied.kinds],
        "left": [
            {
                "of": left.of,
                "goes": bool(left.parts) and not left.stays,
                "bytes": left.size,
                "kinds": [{"kind": part.kind, "number": part.number, "bytes": part.size} for part in left.parts],
                "kept": left.kept,
            }
            for left in tidied.left
        ],
    }
