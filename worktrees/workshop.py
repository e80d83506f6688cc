"""The hands of one run, put together: what the engine knows as its worktrees and its integrator."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from anyio import CancelScope, CapacityLimiter, move_on_after, to_thread

from fleet.core.facts import Failure, Member
from fleet.core.ids import RunId, Sha, SubtaskId, attempt_ref
from fleet.ports import Broken, Change, FleetError, Lease, Merged, Named, Recovered, Repository
from worktrees.box import Box, Place, require
from worktrees.checks import CAP, MORE_BOXES, Checker, checker
from worktrees.clean import DIFF_CAP
from worktrees.commits import pinned_change
from worktrees.decoy import Decoys
from worktrees.desk import BoxDesk
from worktrees.dress import Dresser
from worktrees.forks import forks
from worktrees.include import gather
from worktrees.integrator import StoreIntegrator
from worktrees.lease import OverlayLease, SlotLease
from worktrees.locks import sweep
from worktrees.marks import end_orphans, this_manager
from worktrees.mend import mend
from worktrees.message import Person
from worktrees.overlays import Overlays
from worktrees.publish import Publisher
from worktrees.restore import restored
from worktrees.settings import HandSettings
from worktrees.slots import Pool, remove_slots, slots_dir
from worktrees.snapshot import Snapshot
from worktrees.sparse import cone_of
from worktrees.stations import Stations
from worktrees.store import Store, begin_run, open_store, try_lock, unusable
from worktrees.target import Target
from worktrees.trial import choose
from worktrees.wipe import make_folder


@dataclass(frozen=True, slots=True)
class Workshop:
    """Satisfies `Worktrees` and `Integrator`."""

    store: Store
    settings: HandSettings
    pool: Pool
    overlays: Overlays | None
    """None where worktrees are leased from the pool."""
    box: Box
    checker: Checker
    integrator: StoreIntegrator
    publisher: Publisher
    turns: CapacityLimiter
    decoys: Decoys

    @asynccontextmanager
    async def lease(self, base: Sha, about: Sequence[str] = ()) -> AsyncIterator[Lease]:
        async with AsyncExitStack() as stack:
            if self.overlays is None:
                cone = cone_of(about) if self.settings.sparse else None
                slot = await stack.enter_async_context(self.pool.lease(base, cone))
                handed, most = self.pool.handed(slot), self.pool.most_files(slot)
                place = self._with_git(slot.place, base, slot.admin / "index", exact=not (handed and handed.written))
                desk = stack.enter_context(self._desk(place))
                yield SlotLease(self.store, slot, place, base, desk, self.checker, self.settings, handed, most)
            else:
                seat = await stack.enter_async_context(self.overlays.lease(base))
                place = self._with_git(seat.place, base, seat.index, exact=seat.exact)
                desk = stack.enter_context(self._desk(place))
                yield OverlayLease(self.store, place, seat.overlay, seat.below, desk, self.checker, self.settings)

    def _with_git(self, place: Place, base: Sha, index: Path, *, exact: bool) -> Place:
        """The place with a repository to look at. Without a box, the worktree's own is in sight anyway."""
        if self.settings.sandbox == "none":
            return place
        try:
            decoy = self.decoys.make(place.scratch / "git", base, index=index, exact=exact)
        except OSError as error:
            why = f"a repository for a worker can't be made: {error}"
            raise Broken(Failure(kind="infrastructure", summary=why)) from error
        return replace(place, decoy=decoy)

    @contextmanager
    def _desk(self, place: Place) -> Iterator[BoxDesk]:
        desk = BoxDesk(self.box, place, self.settings, self.turns)
        try:
            yield desk
        finally:
            desk.closed = True

    async def pinned(self, run: RunId, subtask: SubtaskId, attempt: int) -> Change | None:
        return await pinned_change(self.store, attempt_ref(run, subtask, attempt))

    async def diff(self, base: Sha, commit: Sha) -> str:
        return await self.store.patches.between(base, commit, cap=DIFF_CAP)

    async def tree(self, commit: Sha) -> Sha:
        objects = self.store.objects
        known = objects.known(commit)
        return (known if known is not None else await objects.run(partial(objects.commit, commit))).tree

    async def restored(self, commit: Sha, base: Sha, paths: Sequence[str]) -> Sha:
        return await restored(self.store.git, commit, base, paths, Person("fleet", self.settings.email))

    def at(self, commit: Sha) -> Repository:
        return Snapshot(self.store.git, commit)

    async def merge(self, tip: Sha, members: Sequence[Member]) -> Merged:
        return await self.integrator.merge(tip, members)

    async def advance(self, run: RunId, *, new: Sha, old: Sha) -> bool:
        return await self.integrator.advance(run, new=new, old=old)

    async def tip(self, run: RunId) -> Sha:
        return await self.integrator.tip(run)

    async def landed_since(self, run: RunId, old: Sha) -> tuple[Member, ...]:
        return await self.integrator.landed_since(run, old)

    async def publish(self, run: RunId, *, tip: Sha) -> str | None:
        return await self.publisher.publish(run, tip=tip)

    async def mended(self, named: Named) -> Recovered:
        """What is left of a run that goes on, once all was restored that could be. Raises `FleetError`."""
        try:
            return await mend(self.store, self.publisher.target, named, email=self.settings.email)
        except Broken as broken:
            raise FleetError(f"the run can't go on in {self.store.home}: {broken}") from broken


@asynccontextmanager
async def open_workshop(target: Target, settings: HandSettings, run: RunId, base: Sha) -> AsyncIterator[Workshop]:
    """The hands of a run, from a ready store to the last slot removed. Raises `FleetError` where that can't be."""
    require(settings)
    store = await open_store(settings.state_dir, target, base)
    with _held(store, run) as ours, forks(this_manager()) as starter, forks(this_manager()) as keeper:
        if not ours:
            raise FleetError(f"the worktrees of {run} are in use by another process; stop it first")
        await to_thread.run_sync(end_orphans)  # what a killed manager left running could still write
        await _begin(store, run, base)
        box, decoys = Box(settings, starter=starter), Decoys.of(store.git_dir)
        folder, most = slots_dir(store, run) / "stations", settings.check_slots + MORE_BOXES
        stations = Stations(replace(box, starter=keeper), keeper, folder, decoys, CAP, settings.expected_tests, most)
        try:
            chosen = await choose(settings, slots_dir(store, run))
            included = await gather(target, settings.include, slots_dir(store, run) / "included")
            dresser = Dresser(settings, box, store.git, included)
            yield Workshop(
                store=store,
                settings=settings,
                pool=Pool(store, run, settings, dresser),
                overlays=Overlays(store, run, settings, dresser) if chosen.kind == "overlay" else None,
                box=box,
                checker=checker(box, settings, stations),
                integrator=StoreIntegrator(store, Person("fleet", settings.email)),
                publisher=Publisher(store.git, target),
                turns=CapacityLimiter(settings.box_commands),
                decoys=decoys,
            )
        finally:
            try:
                with CancelScope(shield=True), move_on_after(settings.cleanup_s):
                    await stations.close()
                    await remove_slots(store, run)
            finally:
                await store.close()


@contextmanager
def _held(store: Store, run: RunId) -> Iterator[bool]:
    """Whether this run's worktrees are ours for as long as the block lasts."""
    lock = slots_dir(store, run).with_name(f"{run}.lock")
    try:
        make_folder(lock.parent)
    except OSError as error:
        raise unusable(lock, error) from error
    with try_lock(lock) as ours:
        yield ours


async def _begin(store: Store, run: RunId, base: Sha) -> None:
    try:
        await sweep(store, run)
        await remove_slots(store, run)
        await begin_run(store, run, base)
    except Broken as broken:
        raise FleetError(f"the run can't begin in {store.home}: {broken}") from broken
