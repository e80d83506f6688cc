"""Both ends of the calls of one order: a manager and a node in process, with a scripted service."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import aiohttp
import anyio
from aiohttp import web

from agents.conversation.settings import AgentSettings
from agents.factory import Agents, worker_on_node
from agents.models.access import Access
from fleet.core.base.ids import RunId
from fleet.core.facts.facts import Failure, Report
from fleet.engine.internal_errors import unwrapped
from fleet.features.nodes.call_proxy import CallChannel, CallProxy
from fleet.features.nodes.host import OrderHost
from fleet.features.nodes.node_orders import AttemptDone, OrderFailed
from fleet.features.nodes.node_process import LineMeter
from fleet.features.nodes.reports import Spool
from fleet.ports.agents import (
    NO_EXTRAS,
    Asked,
    CommandResult,
    Dialogue,
    DrainingError,
    Dropped,
    Extras,
    InstructionsRead,
    WorkerBrief,
)
from fleet.ports.operator import SILENT
from fleet.ports.orders import AttemptOrder, AttemptResult, Tell, WorkerFinished, WorktreeReady
from fleet.ports.worktrees import Change, EffectError
from tests.agents.conftest import (
    Body,
    FakeMeter,
    FolderWorkspace,
    Script,
    agents_for,
    settings_for,
    worker_settings,
)
from tests.agents.workers.dialogues import converse
from tests.fleet.core.pretend import subtask
from tests.fleet.features.nodes.conftest import MADE, SHA

ORDER = "r/attempt/a/1"
SUCCESS = {"type": "result", "subtype": "success", "structured_output": {"status": "done", "summary": "did it"}}
ENDED = {"type": "result", "subtype": "error_during_execution"}


@dataclass
class SessionWorkspace(FolderWorkspace):
    """A workspace whose program is an agent: it asks the model until that reports, over its socket alone."""

    asks: Body = field(default_factory=dict)
    """What its requests have, besides what they need."""
    statuses: list[int] = field(default_factory=list)
    heard: list[str] = field(default_factory=list)

    async def run(
        self, command: str, *, timeout_s: float, extras: Extras = NO_EXTRAS, dialogue: Dialogue | None = None
    ) -> CommandResult:
        del timeout_s
        self.commands.append(command)
        assert dialogue is not None
        ended = await self._session(
            extras.environment["ANTHROPIC_UNIX_SOCKET"], command.split("--model ")[1].split(maxsplit=1)[0]
        )
        await converse(dialogue, json.dumps(ended, separators=(",", ":")))
        return CommandResult(0, "")

    async def _session(self, socket: str, name: str) -> Body:
        body = {"model": name, "max_tokens": 100, "stream": True, "messages": [{"role": "user", "content": "go"}]}
        headers = {"x-api-key": "mine", "authorization": "Bearer mine", "anthropic-version": "2023-06-01"}
        async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(socket)) as http:
            while True:
                data = json.dumps(body | self.asks).encode()
                async with http.post("http://model/v1/messages", data=data, headers=headers) as answer:
                    self.statuses.append(answer.status)
                    self.heard.append(await answer.text())
                if answer.status != web.HTTPOk.status_code or "message_stop" not in self.heard[-1]:
                    return ENDED
                if '"name": "report"' in self.heard[-1]:
                    return SUCCESS


@dataclass
class NodeWorker:
    """Satisfies `Workshop` with a worker of the node, in a folder."""

    settings: AgentSettings
    workspace: FolderWorkspace
    prepare: Callable[[Any], Any] = lambda worker: worker
    """Changes the worker before it begins."""

    async def attempt(self, order: AttemptOrder, line: CallChannel, tell: Tell) -> AttemptResult:
        await tell(WorktreeReady())
        worker = worker_on_node(self.settings, order.worker, line)
        worker = self.prepare(worker)
        outcome = await worker.run(order.brief, self.workspace, LineMeter(line))
        await tell(WorkerFinished())
        return AttemptResult(outcome, Change(MADE, ("a.txt",)))

    async def check(self, order: object) -> tuple[()]:
        raise AssertionError(order)


@dataclass
class Wiretap:
    """A host whose followers' connection may break; what it was sent is kept."""

    host: OrderHost
    sent: list[bytes] = field(default_factory=list)

    async def answer(self, key: str, number: int, at: int, part: bytes, *, last: bool) -> None:
        self.sent.append(part)
        await self.host.answer(key, number, at, part, last=last)


@dataclass
class Rig:
    """A manager and a node with one order."""

    kind: str
    script: Script
    folder: Path
    manager: dict[str, Any] = field(default_factory=dict)
    """Settings of the manager that are not the product's."""
    node: dict[str, Any] = field(default_factory=dict)
    """Settings that only the node has: an honest one has none."""
    worker: dict[str, Any] = field(default_factory=dict)
    """Settings of the worker."""
    node_worker: dict[str, Any] = field(default_factory=dict)
    prepare: Callable[[Any], Any] = lambda worker: worker
    meter: FakeMeter = field(default_factory=FakeMeter)
    taps: list[Wiretap] = field(default_factory=list)
    link: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """The connection over which the order is followed; cancelled, it breaks, and another one follows it."""
    workspace: FolderWorkspace = field(init=False)

    def __post_init__(self) -> None:
        place = self.folder / "work"
        place.mkdir()
        program = self.folder / "claude"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        self.workspace = FolderWorkspace(place) if self.kind == "coder" else SessionWorkspace(place)
        if self.kind == "claude-code":
            self.worker = {"command": (str(program),), **self.worker}

    @property
    def session(self) -> SessionWorkspace:
        assert isinstance(self.workspace, SessionWorkspace)
        return self.workspace

    def settings(self, at: str, **changes: Any) -> AgentSettings:
        return settings_for(self.script, self.folder / at, **changes)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Agents]:
        workers = {"one": worker_settings(kind=self.kind, **self.worker)}
        async with agents_for(self.script, self.folder / "manager", workers=workers, **self.manager) as agents:
            yield agents

    async def attempt(self, agents: Agents | None = None, number: int = 1, **brief: Any) -> Report | Failure:
        """What the worker came to. Raises what its calls raise."""
        if agents is None:
            async with self.opened() as opened:
                return await self.attempt(opened, number, **brief)
        given = {"model": None, **brief}
        order = AttemptOrder(SHA, "one", WorkerBrief(run=RunId("r"), subtask=subtask("a"), attempt=number, **given))
        outcomes: list[Report | Failure] = []
        try:
            async with anyio.create_task_group() as tasks:
                outcomes.append(await self._followed(agents, order, tasks, number))
                tasks.cancel_scope.cancel()
        except ExceptionGroup as group:
            raise unwrapped(group) from None
        return outcomes[0]

    async def _followed(
        self, agents: Agents, order: AttemptOrder, tasks: anyio.abc.TaskGroup, number: int
    ) -> Report | Failure:
        honest = self.settings(f"node-{number}", **{**self.manager, **self.node})
        no_access = Access("http://127.0.0.1:9", "", honest.access.without)
        workers = {"one": worker_settings(kind=self.kind, **{**self.worker, **self.node_worker})}
        settings = replace(honest, access=no_access, workers=workers)
        spool = Spool(self.folder / f"spool-{number}")
        spool.make()
        shop = NodeWorker(settings, self.workspace, self.prepare)
        file = self.folder / f"node-{number}" / "transcripts" / f"a.{number}.jsonl"

        def transcript(_: AttemptOrder, since: int) -> bytes:
            return file.read_bytes()[since:] if file.exists() else b""

        host = OrderHost(shop, _pack, transcript, spool, tasks)
        await host.start(ORDER, order)
        with agents.calls(order, self.meter) as calls:
            desk = CallProxy(ORDER, calls, SILENT, tasks)
            try:
                while (outcome := await self._follow(host, desk)) is None:
                    pass
            finally:
                calls.close()
            await desk.wait_idle()
            if isinstance(outcome, AttemptDone):
                calls.keep(outcome.transcript)
                return outcome.outcome
            if calls.drained:
                raise DrainingError
            raise EffectError(outcome.failure)

    async def _follow(self, host: OrderHost, desk: CallProxy) -> AttemptDone | OrderFailed | None:
        """The report; None if the connection broke first."""
        tap = Wiretap(host)
        self.taps.append(tap)
        desk.attach(tap)  # type: ignore[arg-type] # as much of it as a desk uses
        with anyio.CancelScope() as self.link:
            async with aclosing(host.follow(ORDER)) as events:
                async for event in events:
                    if isinstance(event, Asked | Dropped | InstructionsRead):
                        await desk.take(event)
                    if isinstance(event, AttemptDone | OrderFailed):
                        return event
        return None

    @property
    def transcript(self) -> list[Body]:
        """What the manager has on record."""
        lines = (self.folder / "manager" / "transcripts" / "a.1.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def has_links(self, count: int) -> bool:
        return len(self.taps) == count

    def count(self, event: str) -> int:
        return [line["event"] for line in self.transcript].count(event)


async def _pack(*_: object) -> bytes:
    return b"PACK"
