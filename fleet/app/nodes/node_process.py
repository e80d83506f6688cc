"""What `fleet node --stdio` runs: this machine's worktrees and workers, for one run of one manager."""

import os
import platform
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from agents.conversation.settings import AgentSettings
from agents.factory import worker_on_node, workers_lacking
from fleet import __version__
from fleet.app.nodes.node_caches import ORDERS, NodeCaches
from fleet.app.nodes.own_disk import OwnDisk
from fleet.app.nodes.scratch import scratch_folder
from fleet.app.nodes.terms import under_terms
from fleet.app.wiring import Wiring
from fleet.config.schema import Config
from fleet.core.base.ids import Sha
from fleet.core.base.usage import Cost
from fleet.core.state.facts import CheckRun, Failure
from fleet.engine.work.local_node import LocalNode
from fleet.errors import FleetError
from fleet.nodes.calling.line import Line
from fleet.nodes.host import Records
from fleet.nodes.messages import PROTOCOL, Greeting, Open
from fleet.nodes.payloads import LONGEST_TRANSCRIPT
from fleet.nodes.serve import serve
from fleet.nodes.spool import Spool
from fleet.nodes.stdio import standard_streams
from fleet.nodes.streams import Link
from fleet.ports.agents import ModelUse, ServiceGate, ServiceNotice, WaitRules
from fleet.ports.nodes import AttemptOrder, AttemptResult, ChecksOrder, Tell
from fleet.ports.worktrees import EffectError, Leasing
from fleet.runs.run_folder import make_state_dir
from worktrees.leases.node_worktrees import open_node_worktrees
from worktrees.sandbox.checks import take_log
from worktrees.sandbox.self_test import find_sandbox_problems
from worktrees.store.node_store import drop_pins, open_node_store
from worktrees.store.packs import cached_commits, take_pack, thin_pack
from worktrees.store.store import Store

NO_MODELS = Failure(kind="configuration", summary="models can't be called from a node")


@dataclass(frozen=True, slots=True)
class LineMeter:
    """Satisfies `AttemptMeter` on a node. The manager's meter counts: nothing is reserved or paid here."""

    line: Line

    @property
    def called(self) -> bool:
        return self.line.called

    @property
    def service(self) -> ServiceGate:
        return _Quiet()

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


class _Quiet:
    """Satisfies `ServiceGate`."""

    def rules(self) -> WaitRules:
        return WaitRules()

    async def report(self, notice: ServiceNotice) -> None:
        del notice

    async def warn(self, text: str) -> None:
        del text


@dataclass(frozen=True, slots=True)
class NodeWorkshop:
    """Satisfies `Workshop`: each attempt has a worker of its own, because its calls go its own way."""

    leases: Leasing
    settings: AgentSettings
    programs: frozenset[str]

    async def attempt(self, order: AttemptOrder, line: Line, tell: Tell) -> AttemptResult:
        worker = worker_on_node(self.settings, order.worker, line)
        node = LocalNode(self.leases, {order.worker: worker}, self.programs)
        return await node.attempt(order, LineMeter(line), tell)

    async def check(self, order: ChecksOrder) -> tuple[CheckRun, ...]:
        return await LocalNode(self.leases).check(order)


@dataclass(frozen=True, slots=True)
class NodeSite:
    """Satisfies `Site`."""

    node: OwnDisk
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
    """Speak with one manager over the standard streams until it is gone."""

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
                    workshop = NodeWorkshop(leases, settings, wiring.command_workers)
                    node = OwnDisk(workshop, state_dir, wiring.worktrees.limits.free_bytes)
                    records = Records(leases.finished_setups, partial(take_log, logs))
                    yield NodeSite(node, spool, store, transcripts, workers_lacking(settings), records)
            finally:
                await drop_pins(store)
                await store.close()

    with ExitStack() as stack:
        with suppress(OSError):  # the greeting says that the folder can't be used
            stack.enter_context(scratch_folder(Path(config.state.dir)))
        greeting = await greet(config, environ)
        stream = stack.enter_context(standard_streams())
        caches = NodeCaches(Path(config.state.dir))
        await serve(Link(stream), greeting, open_site, caches, folder_of=folder_of)


async def greet(config: Config, environ: Mapping[str, str]) -> Greeting:
    """What this machine says of itself."""
    problems = tuple(await _problems(config, environ))  # first: it takes a second, and the clock is compared
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
    """What keeps this machine from working."""
    settings = Wiring(config, environ).worktrees
    try:
        make_state_dir(settings.state_dir)
        problems = await find_sandbox_problems(settings) if settings.sandbox != "none" else ()
    except (FleetError, EffectError, OSError) as error:
        return [f"it can't be tested: {error}"[:2_000]]
    return [f"the sandbox does not hold: {problem}"[:2_000] for problem in problems]
