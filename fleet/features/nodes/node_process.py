"""The process of `fleet node --stdio`: it runs this machine's worktrees and workers for one run of one manager."""

import os
import platform
import shutil
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import IO

from anyio import to_thread

from agents.conversation.settings import AgentSettings
from agents.factory import worker_on_node, workers_lacking
from fleet import __version__
from fleet.app.wiring import Wiring
from fleet.config.schema import Config
from fleet.core.base.ids import Sha
from fleet.core.base.usage import Cost
from fleet.core.facts.facts import CheckRun, Failure
from fleet.engine.this_machine import ThisMachine
from fleet.errors import FleetError
from fleet.features.nodes.call_proxy import CallChannel
from fleet.features.nodes.host import Records
from fleet.features.nodes.messages import LONGEST_TRANSCRIPT, PROTOCOL, CleanupDone, Greeting, Inspected, Open
from fleet.features.nodes.node_config import scratch_folder, under_terms
from fleet.features.nodes.reports import Spool
from fleet.features.nodes.serve import serve
from fleet.features.nodes.transport import Link, standard_streams
from fleet.ports.agents import ModelUse, ServiceGate
from fleet.ports.orders import AttemptOrder, AttemptResult, ChecksOrder, Tell
from fleet.ports.worktrees import EffectError, OpenLease
from fleet.runs.run_folder import make_state_dir
from worktrees.leases.run_worktrees import in_use, open_node_worktrees
from worktrees.sandbox.checks import take_log
from worktrees.sandbox.resource_monitor import least_free
from worktrees.sandbox.self_test import find_sandbox_problems
from worktrees.store.packs import (
    cached_commits,
    cached_count,
    caches_dir,
    drop_pins,
    open_node_store,
    take_pack,
    thin_pack,
)
from worktrees.store.store import Store

MIB = 1024 * 1024
NOBODY = ServiceGate()
NO_MODELS = Failure(kind="configuration", summary="models can't be called from a node")


@dataclass(frozen=True, slots=True)
class LineMeter:
    """Satisfies `Meter` on a node. It does not reserve or pay anything, because the manager's meter does."""

    line: CallChannel
    service: ServiceGate = NOBODY

    @property
    def called(self) -> bool:
        return self.line.called

    def may_call(self) -> bool:
        return True

    async def reserve(self, model: str, cost: Cost) -> Failure | None:
        del model, cost
        return NO_MODELS

    async def widen(self, most: Cost) -> float:
        del most
        return 0.0

    async def used(self, use: ModelUse) -> None:
        raise AssertionError(f"{use.model} was called on a node")

    def release(self, *, lost: bool = False) -> None:
        del lost


@dataclass(frozen=True, slots=True)
class NodeWorkshop:
    """Satisfies `Workshop`. Each attempt has a separate worker, because its calls use a separate line.

    If the disk is full, failures are not blamed on the work: it runs again elsewhere and does not use up an attempt.
    """

    open_lease: OpenLease
    settings: AgentSettings
    programs: frozenset[str]
    folder: Path
    free_bytes: int
    """The free space required on the disk of `folder`."""

    async def attempt(self, order: AttemptOrder, line: CallChannel, tell: Tell) -> AttemptResult:
        worker = worker_on_node(self.settings, order.worker, line)
        node = ThisMachine(self.open_lease, {order.worker: worker}, self.programs)
        result = await node.attempt(order, LineMeter(line), tell)
        if not result.finished or isinstance(result.committed, Failure):
            self._require_room()
        return result

    async def check(self, order: ChecksOrder) -> tuple[CheckRun, ...]:
        runs = await ThisMachine(self.open_lease).check(order)
        if not all(run.fine for run in runs):
            self._require_room()
        return runs

    def _require_room(self) -> None:
        """Raise `EffectError` if the disk is full."""
        try:
            status = os.statvfs(self.folder)
        except OSError as error:
            raise EffectError(Failure(kind="infrastructure", summary=f"can't use the disk: {error}")) from error
        free, least = status.f_bavail * status.f_frsize, least_free(status, self.free_bytes)
        if free < least:
            why = f"the disk is full: {free // MIB} MiB free, {least // MIB} MiB required"
            raise EffectError(Failure(kind="infrastructure", summary=why))


@dataclass(frozen=True, slots=True)
class NodeSite:
    """Satisfies `Site`."""

    node: NodeWorkshop
    spool: Spool
    git_store: Store
    transcripts: Path
    lacks: Sequence[str]
    records: Records

    async def commits(self) -> Sequence[Sha]:
        return await cached_commits(self.git_store)

    async def store(self, commit: Sha, pack: IO[bytes]) -> None:
        await take_pack(self.git_store, commit, pack)

    async def pack(self, commit: Sha, base: Sha) -> bytes:
        return await thin_pack(self.git_store, commit, [base])

    def transcript(self, order: AttemptOrder, since: int) -> bytes:
        path = self.transcripts / f"{order.brief.subtask.id}.{order.brief.attempt}.jsonl"
        try:
            with path.open("rb") as file:
                file.seek(since)
                return file.read(LONGEST_TRANSCRIPT)
        except OSError:
            return b""


async def run_node(config: Config, environ: Mapping[str, str]) -> None:
    """Serve one manager over stdin and stdout until it is gone."""

    def folder_of(opening: Open) -> Path:
        make_state_dir(Path(config.state.dir))
        spool = Spool(Path(config.state.dir) / ORDERS / opening.repository / opening.run)
        spool.make()
        return spool.folder

    @asynccontextmanager
    async def open_site(opening: Open, terms: bytes) -> AsyncIterator[NodeSite]:
        wiring = Wiring(under_terms(config, terms), environ)
        state_dir = Path(config.state.dir)
        make_state_dir(state_dir)
        store = await open_node_store(state_dir, opening.repository, opening.object_format)
        await drop_pins(store)
        spool = Spool(folder_of(opening))
        with TemporaryDirectory() as folder:
            transcripts, logs = Path(folder), Path(folder, "checks")
            try:
                logged = replace(wiring.worktrees, check_logs=logs)
                async with open_node_worktrees(store, logged, opening.base) as leases:
                    settings = wiring.agents(transcripts)
                    free_bytes = wiring.worktrees.limits.free_bytes
                    node = NodeWorkshop(leases.lease, settings, wiring.command_workers, state_dir, free_bytes)
                    records = Records(leases.finished_setups, partial(take_log, logs))
                    yield NodeSite(node, spool, store, transcripts, workers_lacking(settings), records)
            finally:
                await drop_pins(store)
                await store.close()

    with ExitStack() as stack:
        with suppress(OSError):  # the greeting reports problems with the folder
            stack.enter_context(scratch_folder(Path(config.state.dir)))
        greeting = await greet(config, environ)
        stream = stack.enter_context(standard_streams())
        caches = NodeCaches(Path(config.state.dir))
        await serve(Link(stream), greeting, open_site, caches, folder_of=folder_of)


async def greet(config: Config, environ: Mapping[str, str]) -> Greeting:
    """Return this machine's greeting."""
    problems = tuple(await _problems(config, environ))  # first, because it takes a second and would skew the clock
    return Greeting(
        protocol=PROTOCOL,
        version=__version__,
        host=platform.node()[:200] or "unknown",
        processors=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        time=time.time(),
        problems=problems,
    )


async def _problems(config: Config, environ: Mapping[str, str]) -> list[str]:
    """Return the problems that prevent this machine from serving as a node."""
    settings = Wiring(config, environ).worktrees
    try:
        make_state_dir(settings.state_dir)
        problems = await find_sandbox_problems(settings) if settings.box.sandbox != "none" else ()
    except (FleetError, EffectError, OSError) as error:
        return [f"can't test the sandbox: {error}"[:2_000]]
    return [f"the sandbox is not secure: {problem}"[:2_000] for problem in problems]


# ---- node caches -----------------------------------------------------------------------------------------------------
# The data of a node for all runs of all managers: repository caches, and reports to fetch.


ORDERS = "node/orders"
_TRASH = ".deleted-"


@dataclass(frozen=True, slots=True)
class NodeCaches:
    """Satisfies `Caches`."""

    state_dir: Path

    async def inspect(self) -> Inspected:
        homes = await to_thread.run_sync(self._homes)
        commits = [await _commits(home) for home in homes]
        at_work = await to_thread.run_sync(lambda: [key for spool in self._spools() for key in _working(spool)])
        attempts = sum("/attempt/" in key for key in at_work)
        return Inspected(
            attempts=attempts,
            checks=len(at_work) - attempts,
            reports=await to_thread.run_sync(lambda: sum(len(spool.reports()) for spool in self._spools())),
            repositories=len(homes),
            commits=sum(commits),
            bytes=await to_thread.run_sync(self._bytes),
        )

    async def clean(self, repository: str = "") -> CleanupDone:
        """Delete unused caches, and reports that their manager never fetched."""
        before, kept = await to_thread.run_sync(self._bytes), 0
        for home in await to_thread.run_sync(self._homes):
            if repository in {"", home.name}:
                kept += not await self._delete(home)
        return CleanupDone(bytes=max(0, before - await to_thread.run_sync(self._bytes)), in_use=kept)

    async def _delete(self, home: Path) -> bool:
        """Delete the cache and the reports of a repository. A run that opens it at the same time gets a new cache."""
        store = Store(home)
        try:
            async with store.administration():
                if await to_thread.run_sync(in_use, store):
                    return False
                aside = home.with_name(f"{_TRASH}{token_hex(4)}")
                await to_thread.run_sync(home.rename, aside)
        finally:
            await store.close()
        await to_thread.run_sync(lambda: shutil.rmtree(aside, ignore_errors=True))
        orders = self.state_dir / ORDERS / home.name
        await to_thread.run_sync(lambda: shutil.rmtree(orders, ignore_errors=True))
        return True

    def _homes(self) -> list[Path]:
        """Return the caches, and delete remains of an interrupted cleanup."""
        folder = caches_dir(self.state_dir)
        homes = sorted(folder.iterdir()) if folder.is_dir() else []
        for home in homes:
            if home.name.startswith(_TRASH):
                shutil.rmtree(home, ignore_errors=True)
        return [home for home in homes if home.is_dir() and not home.name.startswith(".")]

    def _spools(self) -> Iterator[Spool]:
        yield from (Spool(folder) for folder in sorted((self.state_dir / ORDERS).glob("*/*")) if folder.is_dir())

    def _bytes(self) -> int:
        return sum(_size(folder) for folder in (caches_dir(self.state_dir), self.state_dir / ORDERS))


def _working(spool: Spool) -> list[str]:
    return [key for key in spool.keys() if spool.is_locked(key)]  # noqa: SIM118 - not a dictionary


async def _commits(home: Path) -> int:
    store = Store(home)
    try:
        return await cached_count(store)
    finally:
        await store.close()


def _size(folder: Path) -> int:
    """Return the disk usage of a folder. Files that vanish during the scan are ignored."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_blocks * 512  # noqa: PTH118 - a path each would cost half
            except OSError:
                continue
    return total
