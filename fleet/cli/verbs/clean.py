"""`fleet clean`: lists the disk usage of runs by kind, and deletes it.

Work that has not landed is never deleted, unless its repository is gone and --gone is set.
"""

import shutil
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from dashboards.text.safe import safe
from fleet.cli import common
from fleet.cli.common import AsJson
from fleet.core.base.ids import RunId
from fleet.errors import FleetError
from fleet.features.parts import load_part
from fleet.features.table import FEATURES
from fleet.read.base_view import CleanView, LeftoverView, PartView
from fleet.read.run import RunSnapshot, just_after
from fleet.runs.run_folder import RunFolder, all_runs, root_of
from worktrees.base.fs import size_of
from worktrees.leases.gc import Leftovers, StorePart, StoreUse, clean_run, remove_lost_store, remove_store, stores
from worktrees.store.store import delete_branch, result_branches


def clean(
    apply: Annotated[bool, typer.Option("--apply", help="Delete the listed items. The default is a dry run.")] = False,
    runs: Annotated[
        bool, typer.Option("--runs", help="Include ended runs whose work has all landed, and refused runs.")
    ] = False,
    ended: Annotated[
        bool, typer.Option("--ended", help="Include all ended runs. Commits that did not land stay in the store.")
    ] = False,
    branches: Annotated[
        bool,
        typer.Option("--branches", help="Include fleet/RUN branches that are merged into another branch."),
    ] = False,
    gone: Annotated[
        bool,
        typer.Option("--gone", help="Include the stores of repositories that no longer exist, and the work in them."),
    ] = False,
    max_gb: Annotated[
        float | None,
        typer.Option(
            metavar="GB",
            min=0,
            help="Delete only until this limit is met, longest idle first. "
            "[default: state.max_gb; 0 deletes everything possible]",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show or free the disk space used by runs.

    fleet never deletes work that has not landed, or a branch whose commits are not on another branch. The only
    exception is --gone, for repositories that were removed or moved. With a limit (--max-gb, or state.max_gb in your
    configuration), it deletes only until the limit is met.

    \b
    Examples:
      fleet clean
      fleet clean --apply --runs
      fleet clean --branches
      fleet clean --gone
      fleet clean --apply --max-gb 20
      fleet clean --json | jq .kinds
    """
    settings = common.state_settings()
    limit = (settings.max_gb or None) if max_gb is None else max_gb
    max_bytes = None if limit is None else int(limit * 1e9)
    options = CleanOptions(apply=apply, runs=runs, ended=ended, branches=branches, gone=gone, max_bytes=max_bytes)
    cleaned = common.run_async(lambda: clean_up(Path(settings.dir), options))
    if as_json:
        common.show_json(clean_view(cleaned, options))
    else:
        common.show(text_lines(cleaned, options))


@dataclass(frozen=True, slots=True)
class CleanOptions:
    apply: bool = False
    runs: bool = False
    """Include the folders of ended runs whose work has all landed, and of refused runs."""
    ended: bool = False
    """Include the folders of all other ended runs. Commits that did not land stay in the store."""
    branches: bool = False
    """Include merged result branches of all repositories."""
    gone: bool = False
    """Include stores whose repository no longer exists, and the work in them."""
    max_bytes: int | None = None
    """Delete only until the state directory fits this size, longest idle first."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """A run or a store: the parts that can be deleted, and the reason why others are kept."""

    name: str
    used_at: float
    delete: Callable[[], Awaitable[object]] = field(compare=False)
    parts: tuple[StorePart, ...] = ()
    kept: str = ""
    fits: bool = False
    """Whether it is kept because the state directory already fits its limit."""

    @property
    def goes(self) -> bool:
        return bool(self.parts) and not self.fits

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The result of a cleanup."""

    leftovers: tuple[Leftover, ...]
    total: int
    """Bytes of the state directory before the cleanup."""

    @property
    def kinds(self) -> tuple[StorePart, ...]:
        """The deleted parts by kind, the largest first."""
        kinds: dict[str, StorePart] = {}
        for part in (part for leftover in self.leftovers if leftover.goes for part in leftover.parts):
            sum_ = kinds.get(part.kind, StorePart(part.kind, 0, 0))
            kinds[part.kind] = StorePart(part.kind, sum_.number + part.number, sum_.size + part.size)
        return tuple(sorted(kinds.values(), key=lambda part: -part.size))

    @property
    def size(self) -> int:
        return sum(leftover.size for leftover in self.leftovers if leftover.goes)


async def clean_up(state_dir: Path, options: CleanOptions) -> Cleaned:
    """Find everything that is not in use. With `apply`, delete it."""
    folders = all_runs(state_dir)
    leftovers = [await _of_run(folder, state_dir, options) for folder in folders if not folder.alive]
    known = _known(state_dir)
    leftovers = [*(await _of_branches(folders, state_dir) if options.branches else ()), *leftovers]
    leftovers += [_of_store(store, state_dir, known, options) for store in await stores(state_dir, known)]
    leftovers = [leftover for leftover in leftovers if leftover.parts or leftover.kept]
    total = await size_of(state_dir)
    if options.max_bytes is not None:
        leftovers = _keep_what_fits(leftovers, total - options.max_bytes)
    if options.apply:
        for leftover in leftovers:
            if leftover.goes:
                await leftover.delete()
    return Cleaned(tuple(leftovers), total)


def _keep_what_fits(leftovers: Iterable[Leftover], excess: int) -> list[Leftover]:
    """Delete the longest idle first, and keep the others once the excess is gone."""
    marked = []
    for leftover in sorted(leftovers, key=lambda leftover: leftover.used_at):
        marked.append(replace(leftover, fits=excess <= 0))
        excess -= leftover.size
    return marked


# ---- runs and stores ------------------------------------------------------------------------------------------------


async def _of_run(folder: RunFolder, state_dir: Path, options: CleanOptions) -> Leftover:
    leftovers = await clean_run(state_dir, folder.run, refs=_is_included(folder, options), dry_run=True)
    delete = partial(_delete_run, folder, state_dir, options)
    leftover = Leftover(f"run {folder.run}", folder.journal.stat().st_mtime, delete)
    if leftovers.in_use:
        return replace(leftover, kept="its worktrees are in use")
    parts = list(leftovers.parts)
    if leftovers.refs:
        parts.append(StorePart("refs of landed work", len(leftovers.refs), 0))
    if _folder_goes(folder, leftovers, options):
        parts += await _folder_parts(folder)
    kept = ""
    if leftovers.kept:
        refs = _count(StorePart("refs of work that has not landed", len(leftovers.kept), 0))
        kept = f"{refs}, in {', '.join(str(home / 'fleet.git') for home in leftovers.homes)}"
    return replace(leftover, parts=tuple(parts), kept=kept)


async def _folder_parts(folder: RunFolder) -> list[StorePart]:
    parts = []
    rest = await size_of(folder.path)
    for kind, path in (("transcripts", folder.transcripts), ("logs of checks", folder.checks)):
        if path.is_dir():
            size = await size_of(path)
            rest -= size
            parts.append(StorePart(kind, sum(1 for file in path.rglob("*") if file.is_file()), size))
    return [StorePart("journals", 1, max(0, rest)), *parts]


async def _delete_run(folder: RunFolder, state_dir: Path, options: CleanOptions) -> None:
    if folder.alive:  # it was resumed in the meantime
        return
    rest = await clean_run(state_dir, folder.run, refs=_is_included(folder, options))
    if not rest.in_use and _folder_goes(folder, rest, options):
        for feature in FEATURES.values():
            if feature.keeps:
                load_part(feature.keeps)(folder, state_dir)
        shutil.rmtree(folder.path)


def _folder_goes(folder: RunFolder, leftovers: Leftovers, options: CleanOptions) -> bool:
    return _is_included(folder, options) and (options.ended or not leftovers.kept)


def _is_included(folder: RunFolder, options: CleanOptions) -> bool:
    """Whether the options include the folders of runs with this ending."""
    if not options.runs and not options.ended:
        return False
    run = _run(folder)
    return run is not None and run.ending is not None and (options.ended or run.word in {"landed", "refused"})


def _known(state_dir: Path) -> set[RunId]:
    """The runs that have a folder."""
    return {folder.run for folder in all_runs(state_dir)}


async def _of_branches(folders: Iterable[RunFolder], state_dir: Path) -> list[Leftover]:
    """The result branches of the repositories of all runs, and of the current one."""
    runs = {folder.run: run for folder in folders if (run := _run(folder)) is not None}
    busy = {name for name, run in runs.items() if run.ending is None}
    places = dict.fromkeys(Path(run.figures.repository) for run in runs.values())
    if (here := root_of(common.HERE)) is not None:
        places[here.resolve()] = None
    found = [branch for place in places for branch in await result_branches(place, state_dir, busy)]
    unique = {(branch.target.git_dir, branch.name): branch for branch in found}.values()
    parts = (StorePart("refs of merged results", 1, 0),)
    return [
        Leftover(
            f"branch {safe(branch.name)} of {safe(str(branch.target.root))}",
            0.0,
            partial(delete_branch, branch),
            parts=() if branch.kept else parts,
            kept=branch.kept,
        )
        for branch in unique
    ]


def _run(folder: RunFolder) -> RunSnapshot | None:
    """None if it can't be read."""
    try:
        return just_after(folder.state())
    except FleetError:
        return None


def _of_store(store: StoreUse, state_dir: Path, runs: Collection[RunId], options: CleanOptions) -> Leftover:
    leftover = Leftover(
        f"store {store.home.name}", store.used_at, partial(remove_store, store.home, partial(_known, state_dir))
    )
    if store.idle:
        return replace(leftover, parts=(StorePart("stores", 1, store.size),))
    if store.lost is not None:
        work = f", with work of {', '.join(store.runs)}" if store.runs else ""
        lost = f"its repository {safe(str(store.lost))} is gone{work}"
        if not options.gone:
            return replace(leftover, kept=f"{lost} (use --gone to delete it)")
        delete, parts = partial(remove_lost_store, store.home), (StorePart("stores", 1, store.size),)
        return replace(leftover, name=f"{leftover.name} ({lost})", delete=delete, parts=parts)
    deleted = [run for run in store.runs if run not in runs]
    kept = f"work of deleted runs: {', '.join(deleted)}, in {store.home / 'fleet.git'}" if deleted else ""
    return replace(leftover, kept=kept)


# ---- output ---------------------------------------------------------------------------------------------------------


def text_lines(cleaned: Cleaned, options: CleanOptions) -> Sequence[str]:
    if not cleaned.leftovers:
        return ["nothing to clean"]
    lines = [_line(leftover, options) for leftover in cleaned.leftovers]
    width = max((len(part.kind) for part in cleaned.kinds), default=0)
    lines += [f"  {part.kind:<{width}}  {part.number:>6}  {part.size / 1e6:>9.1f} MB" for part in cleaned.kinds]
    flags = [f"--{name}" for name in ("runs", "ended", "branches", "gone") if getattr(options, name)]
    flags += [f"--max-gb {options.max_bytes / 1e9:g}"] if options.max_bytes is not None else []
    hint = "" if options.apply else f". To delete them: {' '.join(('fleet clean --apply', *flags))}"
    lines.append(f"{cleaned.size / 1e6:.1f} MB of {cleaned.total / 1e6:.1f} MB{hint}")
    over = cleaned.total - cleaned.size - (options.max_bytes or 0)
    if options.max_bytes is not None and over > 0:
        lines.append(f"still {over / 1e6:.1f} MB over the limit: the rest is in use, or has not landed")
    return lines


def _line(leftover: Leftover, options: CleanOptions) -> str:
    kept = f"; kept: {leftover.kept}" if leftover.kept else ""
    parts = ", ".join(map(_count, leftover.parts))
    if not parts:
        return f"{leftover.name}: nothing to delete{kept}"
    verb = "kept, within the limit" if leftover.fits else "deleted" if options.apply else "would be deleted"
    return f"{leftover.name}: {parts} {verb}{kept}"


def _count(part: StorePart) -> str:
    """`1 journal`, `2 logs of checks`: the names of kinds are plurals."""
    noun, of, rest = part.kind.partition(" of ")
    return f"{part.number} {noun.removesuffix('s') if part.number == 1 else noun}{of}{rest}"


def clean_view(cleaned: Cleaned, options: CleanOptions) -> CleanView:
    left = [
        LeftoverView(leftover.name, leftover.goes, leftover.size, _part_views(leftover.parts), leftover.kept)
        for leftover in cleaned.leftovers
    ]
    kinds = _part_views(cleaned.kinds)
    return CleanView(options.apply, bytes=cleaned.size, total_bytes=cleaned.total, kinds=kinds, left=tuple(left))


def _part_views(parts: Iterable[StorePart]) -> tuple[PartView, ...]:
    return tuple(PartView(part.kind, part.number, part.size) for part in parts)
