"""Cheap leases: two folders for each tenant above files that all leases share."""

import heapq
import os
import shutil
import stat
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from anyio import CancelScope, Event, Lock, move_on_after, to_thread

from fleet.core.base.ids import Sha
from fleet.core.base.paths import folders_above
from fleet.errors import FleetError
from fleet.ports.worktrees import EffectError
from fleet.runs.crash_points import reached
from worktrees.base.fs import make_folder, remove_small, wipe
from worktrees.base.process import os_errors
from worktrees.base.settings import LeaseKind, WorktreeSettings
from worktrees.git.diff import Diff
from worktrees.git.object_format import ATTRIBUTES, EXECUTABLE, FILE, GITLINK, LINK, TREE, node_id
from worktrees.git.objects import Objects
from worktrees.git.program import Git, fields
from worktrees.leases.setup import Setup
from worktrees.leases.union_view import (
    OPAQUE,
    BaseFiles,
    OverlayChange,
    TreeView,
    ignored,
    is_opaque,
    is_whiteout,
    read_changes,
)
from worktrees.sandbox.box import Box, Place, port_environment
from worktrees.sandbox.overlay_mount import OPTIONS, UPPER, VIEW, Overlay
from worktrees.store.store import Store, slots_dir

# ---- base layers -----------------------------------------------------------------------------------------------------
# The bases of overlays: checkouts that many leases share, and diff layers from a checkout to a commit near it.
#
# A checkout costs as much as the repository, so there are few. A commit near one gets a diff layer above it, with the
# few files that differ. If none is near, an idle checkout moves to the commit by the difference. A checkout or a layer
# does not change while a lease uses it.


OVERLAYS = "overlays"  # the folder of the leases that are overlay mounts
NEAR = 1_000  # limit on paths of a diff layer: one of 500 costs a twelfth of moving a checkout of 10,000 files
NEAR_PART = 50  # or this fraction of the checkout's paths, if that is more
MAX_LAYERS = 8  # above a checkout: each adds one lookup per file
ANCESTORS = 100  # commits to search back for a base
IDLE_LAYERS = 4  # kept for the next lease on the same commit; the tip is leased often
IDLE_CHECKOUTS = 1


@dataclass(slots=True, eq=False)
class LayerCheckout:
    """All files of a commit, not changed by convention: workers see it through an overlay."""

    home: Path
    name: str
    base: "Base | None" = None
    """None while it moves. After an interrupted move, it is checked out again in full."""
    gitlinks: frozenset[str] = frozenset()
    files: int = 0
    converts: bool = False
    """Whether attributes may make files differ from their blobs."""

    @property
    def tree(self) -> Path:
        return self.home / self.name / "tree"

    @property
    def index(self) -> Path:
        return self.home / self.name / "index"


@dataclass(slots=True, eq=False)
class Base:
    """The files of one commit: a checkout, or diff layers above one."""

    below: BaseFiles
    checkout: LayerCheckout
    layers: tuple[str, ...] = ()
    """The uppermost first."""
    parent: "Base | None" = None
    entries: int = 0
    """Only of the base's own layer."""
    tenants: int = 0
    """Leases, and layers being created above it."""
    children: int = 0

    @property
    def lowers(self) -> tuple[str, ...]:
        return (*self.layers, f"{self.checkout.name}/tree")


@dataclass(slots=True)
class BaseLayers:
    """The checkouts and diff layers of one run."""

    home: Path
    store: Store
    near: int = NEAR
    near_part: int = NEAR_PART
    max_layers: int = MAX_LAYERS
    idle_layers: int = IDLE_LAYERS
    _bases: dict[Sha, Base] = field(default_factory=dict)
    """The least recently used first."""
    _newest: Base | None = None
    _checkouts: list[LayerCheckout] = field(default_factory=list)
    _under_way: dict[Sha, Event] = field(default_factory=dict)
    _moving: Lock = field(default_factory=lambda: Lock(fast_acquire=True))
    _made: int = 0
    _trash: list[str] = field(default_factory=list)

    async def take(self, commit: Sha) -> Base:
        """Return the base for a commit. It does not change until `leave`. Raises `EffectError`."""
        while (base := self._existing(commit)) is None:
            if (under_way := self._under_way.get(commit)) is not None:
                await under_way.wait()
                continue
            self._under_way[commit] = under_way = Event()
            try:
                base = self._newest = self._bases[commit] = await self._build(commit)
                break
            finally:
                del self._under_way[commit]
                under_way.set()
        base.tenants += 1
        return base

    def leave(self, base: Base) -> None:
        base.tenants -= 1
        commit = base.below.commit
        if self._bases.get(commit) is base:
            self._bases[commit] = self._bases.pop(commit)  # to the end: most recently used

    def _existing(self, commit: Sha) -> Base | None:
        """Return the base for a commit. Deleted checkouts are dropped first, with every base above them."""
        base = self._bases.get(commit)
        lost = {checkout for checkout in self._checkouts if checkout.base and not checkout.tree.is_dir()}
        if base is not None and not all((self.home / name).is_dir() for name in base.lowers):
            lost.add(base.checkout)
        for checkout in lost:
            self._drop(checkout)
        return self._bases.get(commit)

    async def _build(self, commit: Sha) -> Base:
        await self._tidy()
        tried = set[Base]()
        base = await self._above_another(commit, tried)
        if base is not None:
            return base
        async with self._moving:
            base = await self._above_another(commit, tried)  # above the checkout that moved in the meantime
            if base is not None:
                return base
            idle = next((checkout for checkout in self._checkouts if self._is_idle(checkout)), None)
            return await self._move(idle or self._new_checkout(), commit)

    async def _above_another(self, commit: Sha, tried: set[Base]) -> Base | None:
        """Create the base for a commit as a layer above the first candidate that is near."""
        while (parent := next((base for base in self._candidates(commit) if base not in tried), None)) is not None:
            tried.add(parent)
            parent.tenants += 1
            try:
                base = await self._layer_above(parent, commit)
            finally:
                parent.tenants -= 1
            if base is not None and base.checkout in self._checkouts:
                parent.children += 1
                return base
        return None

    def _candidates(self, commit: Sha) -> Iterator[Base]:
        """Possible bases for a new layer, probably nearest first."""
        for base in (self._base_of_ancestor(commit), self._newest):
            if base is not None:
                yield foundation(base, self.max_layers)
        yield from (checkout.base for checkout in reversed(self._checkouts) if checkout.base is not None)

    def _base_of_ancestor(self, commit: Sha) -> Base | None:
        """Return the base of the nearest ancestor that has one: that of an attempt, or the tip before."""
        for _ in range(ANCESTORS):
            known = self.store.repository.objects.cached_commit(commit)
            if known is None or not known.parents:
                break
            commit = known.parents[0]
            if commit in self._bases:
                return self._bases[commit]
        return None

    async def _layer_above(self, parent: Base, commit: Sha) -> Base | None:
        """Create the base for a commit as a layer above another base, if the two are near."""
        checkout, layers, view = parent.checkout, parent.layers, parent.below.view
        self._made += 1
        folder = self.home / f"layers/{self._made}"
        most = max(self.near, checkout.files // self.near_part)
        old = parent.below.commit
        diff = await make_diff_layer(self.store, folder, old, commit, most=most, converts=checkout.converts)
        if diff is None:
            return None
        if diff.entries:
            layers, view = (f"layers/{folder.name}", *layers), TreeView((folder, *view.layers))
        gitlinks = parent.below.gitlinks.difference(diff.paths) | diff.gitlinks
        return Base(BaseFiles(commit, view, gitlinks), checkout, layers, parent, len(diff.entries))

    def _new_checkout(self) -> LayerCheckout:
        self._made += 1
        checkout = LayerCheckout(self.home, f"bases/{self._made}")
        self._checkouts.append(checkout)
        return checkout

    async def _move(self, checkout: LayerCheckout, commit: Sha) -> Base:
        """Move a checkout that no lease uses."""
        self._trash += self._forget(self._bases_on(checkout))
        await self._empty_trash()
        before, checkout.base = checkout.base, None
        with CancelScope(shield=True):  # a checkout that stopped halfway is useless
            await self._check_out(checkout, commit, before.below.commit if before else None)
        checkout.base = Base(BaseFiles(commit, TreeView((checkout.tree,)), checkout.gitlinks), checkout)
        return checkout.base

    async def _check_out(self, checkout: LayerCheckout, commit: Sha, before: Sha | None) -> None:
        git, env = Git(self.store.git_dir, checkout.tree), {"GIT_INDEX_FILE": str(checkout.index)}
        if before is not None and (await self.store.repository.diff(before, commit)).changes_attributes:
            before = None
        if before is not None:
            answer = await git.ask("read-tree", "-m", "-u", before, commit, env=env)
            before = before if answer.exit_code == 0 else None
        if before is None:
            await wipe(checkout.tree.parent)
            await to_thread.run_sync(make_folder, checkout.tree)
            await git("read-tree", "--reset", "-u", commit, env=env)
            await to_thread.run_sync((checkout.tree / ".git").touch)  # the mount point of the decoy's pointer
        listed = fields(await git("ls-files", "-z", "--stage", env=env))
        checkout.files = len(listed)
        checkout.gitlinks = frozenset(line.split("\t", 1)[1] for line in listed if line.startswith(f"{GITLINK} "))
        checkout.converts = any(line.endswith(ATTRIBUTES) for line in listed)

    async def _tidy(self) -> None:
        """Remove unused bases, except for the few that are probably needed again."""
        unused = [base for base in self._bases.values() if base.layers and not base.tenants and not base.children]
        self._trash += self._forget(unused[: -self.idle_layers])
        idle = [checkout for checkout in self._checkouts if checkout.base is not None and self._is_idle(checkout)]
        for checkout in idle[:-IDLE_CHECKOUTS]:
            self._drop(checkout)
        await self._empty_trash()

    async def _empty_trash(self) -> None:
        while self._trash:
            await to_thread.run_sync(partial(shutil.rmtree, self.home / self._trash.pop(), ignore_errors=True))

    def _bases_on(self, checkout: LayerCheckout) -> list[Base]:
        return [base for base in self._bases.values() if base.checkout is checkout]

    def _is_idle(self, checkout: LayerCheckout) -> bool:
        return not any(base.tenants for base in self._bases_on(checkout))

    def _drop(self, checkout: LayerCheckout) -> None:
        """Retire a checkout. It is removed, with the layers above it, after the last lease on it."""
        is_idle = self._is_idle(checkout)
        layers = self._forget(self._bases_on(checkout))
        self._checkouts = [other for other in self._checkouts if other is not checkout]
        if is_idle:
            self._trash += [checkout.name, *layers]

    def _forget(self, bases: Sequence[Base]) -> list[str]:
        """Retire these bases. Return the folders of layers that only they used."""
        layers = []
        for base in bases:
            del self._bases[base.below.commit]
            if base.parent is not None:
                base.parent.children -= 1
                if base.layers != base.parent.layers:
                    layers.append(base.layers[0])
        while self._newest is not None and self._bases.get(self._newest.below.commit) is not self._newest:
            self._newest = self._newest.parent
        return layers


def foundation(newest: Base, max_layers: int = MAX_LAYERS) -> Base:
    """Choose the base of the next layer: the newest base, or one below it if the newest has the maximum of layers.

    The new layer then replaces the upper ones while their total size is larger than the next one below. So a changed
    file is written a few times, and not with every eighth layer from then on.
    """
    base, replaced = newest, 0
    if len(newest.layers) >= max_layers:
        while base.parent is not None and (len(base.layers) >= max_layers or base.entries < replaced):
            replaced += base.entries
            base = base.parent
    return base


# ---- diff layer ------------------------------------------------------------------------------------------------------
# Diff layers: a diff layer above the files of one commit shows those of another.
#
# It contains the files that differ and a whiteout for each removed file. It is written in process, in time proportional
# to the difference. If attributes convert files during a checkout, git writes them itself.


async def make_diff_layer(store: Store, layer: Path, old: Sha, new: Sha, *, most: int, converts: bool) -> Diff | None:
    """Create the folder of the layer from one commit to another, unless their files are the same. Return the diff.

    Return None if they differ in more than `most` paths, or in how files are converted. `converts`: whether any file
    is.
    """
    repository = store.repository
    diff = await repository.diff(old, new)
    if len(diff.entries) > most or diff.changes_attributes:
        return None
    if diff.entries:
        await repository.check_out(layer, new, diff.files, converts=converts)
        await repository.run(partial(_add_folders_and_whiteouts, repository.objects, layer, new, diff))
    return diff


def _hidden(objects: Objects, commit: Sha, removed: Sequence[str]) -> tuple[str, ...]:
    """The paths to hide: removed files, or their full folder if it is empty now."""
    trees: dict[str, Sha | None] = {"": objects.tree_of(commit)}

    def tree_at(folder: str) -> Sha | None:
        if folder not in trees:
            parent_folder, _, name = folder.rpartition("/")
            parent = tree_at(parent_folder)
            node = objects.tree(parent).get(os.fsencode(name)) if parent is not None else None
            trees[folder] = node_id(node) if node is not None and node[0] == TREE else None
        return trees[folder]

    outermost = (next((above for above in folders_above(path) if tree_at(above) is None), path) for path in removed)
    return tuple(dict.fromkeys(outermost))


def _add_folders_and_whiteouts(objects: Objects, layer: Path, commit: Sha, diff: Diff) -> None:
    """Add the folders of submodules, and whiteouts for removed files."""
    for path in diff.gitlinks:
        make_folder(layer / path)
    for path in _need_whiteout(layer, _hidden(objects, commit, diff.removed)):
        make_folder((layer / path).parent)
        os.mknod(layer / path, stat.S_IFCHR | 0o600, os.makedev(0, 0))


def _need_whiteout(layer: Path, hidden: Sequence[str]) -> Iterator[str]:
    """The paths that the layer does not hide already, by a file in place of a folder or a folder in place of a file."""
    for path in hidden:
        above = [layer / folder for folder in folders_above(path)]
        below_a_file = any(folder.is_symlink() or (folder.exists() and not folder.is_dir()) for folder in above)
        if not below_a_file and not os.path.lexists(layer / path):
            yield path


# ---- probe -----------------------------------------------------------------------------------------------------------
# Tests whether leases can be overlays by creating one. This depends on the kernel, containers and file systems.


LIMIT_S = 60.0
BELOW = {"edited": "1\n", "gone": "1\n", "folder/old": "1\n", "moved/inner": "1\n", "kept/deep/file": "1\n", ".git": ""}
EDIT = """
echo 2 > edited && chmod +x edited && rm gone && rm -r folder && mkdir folder && echo 1 > folder/new && mv moved there \
&& ln -s edited link && echo 2 > kept/deep/other
"""
VERIFY = 'test "$(cat edited folder/new there/inner kept/deep/file)" = "$(printf "2\\n1\\n1\\n1")" && test ! -e gone'
CHANGES = (
    OverlayChange("edited", "file", EXECUTABLE),
    OverlayChange("folder", "opaque"),
    OverlayChange("folder/new", "file", FILE),
    OverlayChange("gone", "deleted"),
    OverlayChange("kept/deep/other", "file", FILE),
    OverlayChange("link", "link", LINK),
    OverlayChange("moved", "deleted"),
    OverlayChange("there/inner", "file", FILE),
)


@dataclass(frozen=True, slots=True)
class ChosenKind:
    """The kind of leases, and the reason."""

    kind: LeaseKind
    why: str


async def choose_kind(settings: WorktreeSettings, folder: Path, *, options: str = OPTIONS) -> ChosenKind:
    """Choose overlays if they work in `folder`, unless the configuration overrides it. Raises `FleetError`."""
    if settings.worktrees.lease == "pool":
        return ChosenKind("pool", "as configured")
    problem = await _find_problem(settings, folder, options)
    if problem is None:
        return ChosenKind("overlay", "tested: fleet finds changes, and the shared files stay unchanged")
    if settings.worktrees.lease == "overlay":
        raise FleetError(
            f"overlays don't work on this machine: {problem}", hint='set worktrees.lease to "auto" or "pool"'
        )
    return ChosenKind("pool", f"overlays don't work on this machine: {problem}")


async def _find_problem(settings: WorktreeSettings, folder: Path, options: str) -> str | None:
    """Return why overlays don't work in `folder`, or None."""
    if settings.box.sandbox == "none":
        return "they are mounted in the sandbox, which is disabled"
    try:
        make_folder(folder)
        with TemporaryDirectory(prefix="trial-", dir=folder, ignore_cleanup_errors=True) as home:
            limits = replace(settings.limits, free_bytes=0)  # a full disk is not a problem of overlays
            return await _try_overlay(Box(replace(settings, limits=limits)), Path(home), options)
    except OSError as error:
        return str(error)
    except EffectError as error:
        return f"{error}: {error.failure.evidence.strip()}"


async def _try_overlay(box: Box, home: Path, options: str) -> str | None:
    for name, content in BELOW.items():
        make_folder((home / "below" / name).parent)
        (home / "below" / name).write_text(content, encoding="utf-8")
    overlay = Overlay(home, ("below",), "lease", options)
    overlay.make()
    make_folder(overlay.view)
    place = Place(overlay.view, home / "scratch", "trial", overlay)
    for script in (EDIT, VERIFY):
        done = await box.run(place, ("sh", "-c", script), timeout_s=LIMIT_S, cap=4096)
        if done.exit_code != 0:
            return f"a command failed in it: {done.text.strip()[-500:]}"
    if read_changes(overlay.upper) != CHANGES:
        return "the changes are not readable from outside"
    untouched = all((home / "below" / name).read_text(encoding="utf-8") == content for name, content in BELOW.items())
    return None if untouched else "the files below the overlay changed"


# ---- overlay ---------------------------------------------------------------------------------------------------------


SMALL = 500  # files and folders of a lease that are removed in process
CLEANUP_S = 30.0  # time limit for removing a larger lease; the rest is removed when the run stops


@dataclass(frozen=True, slots=True)
class LeasedOverlay:
    overlay: Overlay
    below: BaseFiles
    place: Place
    index: Path
    """Whether the index is of exactly that commit."""
    exact: bool
    """Whether the index is of exactly that commit."""


class Overlays:
    """The overlays of one run."""

    def __init__(self, store: Store, name: str, settings: WorktreeSettings, setup: Setup) -> None:
        self.home = slots_dir(store, name) / OVERLAYS
        self.base_layers = BaseLayers(self.home, store)
        self._setup_layers = SetupLayers(self.home, store.git, setup, self.base_layers)
        self._name, self._settings = name, settings
        self._free: list[int] = []  # released numbers; the smallest is used first, so that they stay small
        self._numbers, self._folders = count(1), count(1)
        self._unused_folders: list[str] = []
        """Of checks that did not leave files in them."""

    @asynccontextmanager
    async def lease(self, commit: Sha) -> AsyncIterator[LeasedOverlay]:
        """Lease a worktree with exactly this commit. Raises `EffectError`."""
        base = await self.base_layers.take(commit)
        number = heapq.heappop(self._free) if self._free else next(self._numbers)
        is_new = not self._unused_folders
        folder = f"leases/{next(self._folders)}" if is_new else self._unused_folders.pop()
        overlay, name = Overlay(self.home, (), folder), f"{self._name}/{number}"
        try:
            overlay = await self._overlay(base, folder, name, is_new=is_new)
            environment = port_environment(self._settings, number)
            place = Place(overlay.view, self.home / folder, name, overlay, environment)
            reached("a worktree is leased")
            yield LeasedOverlay(overlay, base.below, place, base.checkout.index, exact=not base.layers)
        finally:
            self.base_layers.leave(base)
            heapq.heappush(self._free, number)
            if overlay.is_as_made():
                self._unused_folders.append(folder)
            else:
                await _remove(self.home / folder)
            reached("a worktree is given back")

    async def _overlay(self, base: Base, folder: str, name: str, *, is_new: bool) -> Overlay:
        with os_errors("a worktree can't be made ready"):
            if is_new:
                make_folder(self.home / VIEW)
            setup_layers = await self._setup_layers.layers(base.below, base.lowers, name)
            overlay = Overlay(self.home, (*setup_layers, *base.lowers), folder)
            if is_new:
                overlay.make()
            return overlay


async def _remove(folder: Path) -> None:
    if not remove_small(folder, max_entries=SMALL):
        with CancelScope(shield=True), move_on_after(CLEANUP_S), suppress(EffectError):
            await wipe(folder)


# ---- setup layers ----------------------------------------------------------------------------------------------------
# Files of the setup command as layers that all overlays share: created once per fingerprint, then read-only.
#
# Only files that git ignores are kept. A tenant that changes them changes its own upper folder.


@dataclass(frozen=True, slots=True)
class SetupLayer:
    folder: str
    roots: tuple[str, ...]
    """The paths in the tree that contain its files."""


@dataclass(slots=True)
class SetupLayers:
    """The setup layers of one run."""

    home: Path
    git: Git
    setup: Setup
    base_layers: BaseLayers
    _layers: dict[str, SetupLayer] = field(default_factory=dict)
    """By fingerprint."""
    _fits: dict[tuple[Sha, str], bool] = field(default_factory=dict)
    _making: Lock = field(default_factory=Lock)

    async def layers(self, below: BaseFiles, lowers: tuple[str, ...], name: str) -> tuple[str, ...]:
        """The layers to put above `lowers`. Raises `EffectError`."""
        if not self.setup.is_needed:
            return ()
        async with self._making:
            fingerprint = await self.setup.fingerprint(below.commit)
            if fingerprint not in self._layers:
                self._layers[fingerprint] = await self._make_on_origin(below, lowers, name)
            if not await self._layer_fits(self._layers[fingerprint], below.commit):
                fingerprint = f"{fingerprint}-{below.commit}"
                if fingerprint not in self._layers:
                    self._layers[fingerprint] = await self._make(below, lowers, name)
            return (self._layers[fingerprint].folder,)

    async def _make_on_origin(self, below: BaseFiles, lowers: tuple[str, ...], name: str) -> SetupLayer:
        """Create a layer on the commit that the setup command runs on, which may be another one."""
        origin = await self.setup.origin(below.commit)
        if origin == below.commit:
            return await self._make(below, lowers, name)
        base = await self.base_layers.take(origin)
        try:
            return await self._make(base.below, base.lowers, name)
        finally:
            self.base_layers.leave(base)

    async def _layer_fits(self, layer: SetupLayer, commit: Sha) -> bool:
        """Whether the commit has no files at the layer's paths. The layer would hide them."""
        if (commit, layer.folder) not in self._fits:
            listing = ("ls-tree", "-r", "-z", "--name-only", commit, "--", *layer.roots)
            self._fits[commit, layer.folder] = not (layer.roots and await self.git(*listing))
        return self._fits[commit, layer.folder]

    async def _make(self, below: BaseFiles, lowers: tuple[str, ...], name: str) -> SetupLayer:
        overlay = Overlay(self.home, lowers, f"setups/{len(self._layers) + 1}")
        await wipe(overlay.upper.parent)  # left by a failed attempt to create it
        overlay.make()
        await to_thread.run_sync(self.setup.included.copy_into, below.view, overlay.upper)
        await self.setup.run(Place(overlay.view, overlay.upper.with_name("scratch"), name, overlay), below.commit)
        files = await to_thread.run_sync(lambda: list(_plain_files(overlay.upper)))
        ignored_files = await ignored(self.git, below.view, files) if files else frozenset()
        await to_thread.run_sync(_remove_others, overlay.upper, files, ignored_files)
        roots = {self._root(below, path) for path in ignored_files}
        return SetupLayer(f"{overlay.folder}/{UPPER}", tuple(sorted(roots)))

    def _root(self, below: BaseFiles, path: str) -> str:
        return next((above for above in folders_above(path) if not below.view.is_folder(above)), path)


def _plain_files(upper: Path) -> Iterator[str]:
    """All entries except folders. Whiteouts and opaque marks are removed, so that tracked files show unchanged."""
    pending = [""]
    while pending:
        folder = pending.pop()
        at = upper / folder
        at.chmod(at.stat().st_mode | 0o700)
        if is_opaque(os.fspath(at)):
            os.removexattr(at, OPAQUE)
        with os.scandir(at) as entries:
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir(follow_symlinks=False):
                    pending.append(path)
                elif is_whiteout(entry.stat(follow_symlinks=False)):
                    Path(entry.path).unlink()
                else:
                    yield path


def _remove_others(upper: Path, files: list[str], ignored_files: frozenset[str]) -> None:
    for path in set(files) - ignored_files:
        (upper / path).unlink()
