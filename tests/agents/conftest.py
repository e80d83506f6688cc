"""A scripted model over real HTTP, a workspace in a real folder, a repository of a few files."""

import json
import os
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest
from aiohttp import web

from agents.conversation.settings import AgentSettings, WorkerSettings
from agents.factory import Agents, open_agents
from agents.models.access import Access
from agents.models.answer import Answer, CallFault, OnBegin, Quotas, Request
from agents.models.calls import Caller
from agents.models.client import Client, open_client
from agents.models.exchange import Timeouts
from agents.models.service import RetryPolicy
from fleet.app.wiring import Wiring
from fleet.config.load import default_config
from fleet.core.base.ids import RunId
from fleet.core.base.usage import Capability, Cost
from fleet.core.facts.facts import Failure, ServiceCondition
from fleet.core.plans.plan import Criterion, Subtask
from fleet.ports.agents import (
    NO_EXTRAS,
    CommandResult,
    Dialogue,
    Extras,
    ModelUse,
    ServiceGate,
    ServiceNotice,
    WaitRules,
    WorkerBrief,
    WorkspaceError,
)
from tests.settings import with_values

Body = dict[str, Any]
Reply = Callable[[web.Request], Awaitable[web.StreamResponse]]
KEY = "sk-test-0123456789"
SEEDED = Random(1)  # noqa: S311 - jitter needs no secrecy


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK merges these into every call, whatever its arguments."""
    monkeypatch.delenv("ANTHROPIC_CUSTOM_HEADERS", raising=False)
    monkeypatch.delenv("ANTHROPIC_LOG", raising=False)


# ---- replies ----


def events(
    blocks: Sequence[Body], *, stop: str | None = "tool_use", model: str = "claude-haiku-5-5"
) -> list[tuple[str, Body]]:
    """A message as the service streams it."""
    usage = {"input_tokens": 10, "output_tokens": 1, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 5}
    start = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [], "usage": usage}
    stream: list[tuple[str, Body]] = [("message_start", {"message": start})]
    for index, block in enumerate(blocks):
        empty, deltas = _pieces(block)
        stream.append(("content_block_start", {"index": index, "content_block": empty}))
        stream += [("content_block_delta", {"index": index, "delta": delta}) for delta in deltas]
        stream.append(("content_block_stop", {"index": index}))
    stream.append(("message_delta", {"delta": {"stop_reason": stop}, "usage": {"output_tokens": 20}}))
    stream.append(("message_stop", {}))
    return [(name, {"type": name, **data}) for name, data in stream]


def _pieces(block: Body) -> tuple[Body, list[Body]]:
    match block["type"]:
        case "text":
            text = block["text"]
            return {"type": "text", "text": ""}, [{"type": "text_delta", "text": part} for part in (text[:3], text[3:])]
        case "tool_use":
            raw = block["raw"] if "raw" in block else json.dumps(block["input"])
            parts = [raw[at : at + 7] for at in range(0, len(raw), 7)]
            empty = {"type": "tool_use", "id": block["id"], "name": block["name"], "input": {}}
            return empty, [{"type": "input_json_delta", "partial_json": part} for part in parts]
        case _:
            return block, []


def text(words: str) -> Body:
    return {"type": "text", "text": words}


def use(tool: str, given: Body | None = None, *, id: str = "toolu_1", raw: str | None = None) -> Body:  # noqa: A002 - the wire's name
    block = {"type": "tool_use", "id": id, "name": tool, "input": given or {}}
    return block if raw is None else {**block, "raw": raw}


def sse(events: Sequence[tuple[str, Body]], *, then: str = "end", headers: dict[str, str] | None = None) -> Reply:
    """Streams events; `then` the stream ends, hangs, or continues with pings."""

    async def reply(request: web.Request) -> web.StreamResponse:
        all_headers = {"content-type": "text/event-stream", "request-id": "req_1", **(headers or {})}
        response = web.StreamResponse(headers=all_headers)
        await response.prepare(request)
        for name, data in events:
            await response.write(f"event: {name}\ndata: {json.dumps(data)}\n\n".encode())
        while then != "end":
            await anyio.sleep(0.02)
            if then == "ping":
                await response.write(b'event: ping\ndata: {"type": "ping"}\n\n')
        return response

    return reply


def says(*blocks: Body, stop: str | None = "tool_use", model: str = "claude-haiku-5-5") -> Reply:
    return sse(events(blocks, stop=stop, model=model))


def fails(status: int, type_: str, message: str = "no", headers: dict[str, str] | None = None) -> Reply:
    async def reply(_request: web.Request) -> web.StreamResponse:
        body = {"type": "error", "error": {"type": type_, "message": message}}
        return web.json_response(body, status=status, headers=headers)

    return reply


def raw(body: bytes, *, status: int = 200, kind: str = "text/html") -> Reply:
    async def reply(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=body, status=status, content_type=kind)

    return reply


# ---- the model ----


@dataclass
class Script:
    """The replies of the model, and the requests it got. The last reply is repeated."""

    replies: list[Reply] = field(default_factory=list)
    asked: list[Body] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    url: str = ""

    def will(self, *replies: Reply) -> None:
        self.replies += replies

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(await request.json())
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        reply = self.replies[min(len(self.asked), len(self.replies)) - 1]
        return await reply(request)

    def results(self, call: int = -1) -> list[Body]:
        """The tool results that came with a call."""
        last = self.asked[call]["messages"][-1]["content"]
        return [block for block in last if block["type"] == "tool_result"]


@pytest.fixture
async def model() -> AsyncIterator[Script]:
    script = Script()
    app = web.Application(client_max_size=50_000_000)
    app.router.add_post("/v1/messages", script.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    script.url = f"http://{host}:{port}"
    yield script
    await runner.cleanup()


def settings_for(script: Script, folder: Path, **changes: Any) -> AgentSettings:
    """The product's defaults, except that no retry waits."""
    product = Wiring(default_config(), {"ANTHROPIC_API_KEY": KEY}).agents(folder / "transcripts")
    retry = RetryPolicy(changes.pop("retries", 3), 0.001, 60, backoff_cap_s=0.002, pause_s=0.001)
    access = Access(script.url, KEY, frozenset(changes.pop("without", ())))
    return with_values(product, {"access": access, "retry": retry, **changes})


def worker_settings(**changes: Any) -> WorkerSettings:
    """The product's defaults, except for these."""
    product = Wiring(default_config(), {}).workers["coder"]
    if "command" in changes:
        changes["command"] = shlex.join(changes["command"])
    return WorkerSettings(**{**dict(product), **changes, "changed": frozenset(changes) - {"passed"}})


@asynccontextmanager
async def agents_for(script: Script, folder: Path, **changes: Any) -> AsyncIterator[Agents]:
    async with open_agents(settings_for(script, folder, **changes), chance=SEEDED) as agents:
        yield agents


@asynccontextmanager
async def client_for(
    script: Script, *, silence_s: float = 5, call_s: float = 10, without: Collection[Capability] = ()
) -> AsyncIterator[Client]:
    access = Access(script.url, KEY, frozenset(without))
    async with open_client(access, Timeouts(connect_s=5, silence_s=silence_s, call_s=call_s)) as client:
        yield client


def ignore(_: Quotas) -> None:
    """An answer began, and the test does not need to know."""


class NoModel:
    """The model of a caller that only passes calls on."""

    async def ask(self, request: Request, on_begin: OnBegin) -> Answer | CallFault:
        raise AssertionError(request, on_begin)


def unopened_client(settings: AgentSettings) -> Client:
    """A client for tests without a call."""
    return Client(AsyncExitStack(), settings.access, settings.timeouts)


def caller_for(settings: AgentSettings) -> Caller:
    return Caller(NoModel(), settings.retry, settings.prices, chance=SEEDED)


# ---- the surroundings ----


@dataclass
class FakeMeter:
    """A meter that allows so many calls."""

    calls: int = 1000
    uses: list[ModelUse] = field(default_factory=list)
    reserved: list[Cost] = field(default_factory=list)
    widened: list[Cost] = field(default_factory=list)
    share: float = 1.0
    """How far it has room beyond what a call usually costs."""
    released: list[bool] = field(default_factory=list)
    answered_before: bool = False
    """Whether a model ever answered: only then do calls wait for the service."""
    notices: list[ServiceNotice] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    answers: int = 0
    """How often a human answered a question about the whole run."""
    drained: bool = False
    """Whether the run is draining."""

    def may_call(self) -> bool:
        return len(self.uses) < self.calls

    async def reserve(self, model: str, cost: Cost) -> Failure | None:
        del model
        self.reserved.append(cost)
        return None if self.may_call() else Failure(kind="spent", summary="the budget is spent")

    async def widen(self, most: Cost) -> float:
        self.widened.append(most)
        return self.share

    async def used(self, use: ModelUse) -> None:
        self.uses.append(use)

    def release(self, *, lost: bool = False) -> None:
        self.released.append(lost)

    @property
    def called(self) -> bool:
        return bool(self.uses)

    @property
    def service(self) -> ServiceGate:
        return ServiceGate(self.rules, self.report, self.warn)

    def rules(self) -> WaitRules:
        conditions: frozenset[ServiceCondition] = frozenset({"limited", "down", "refused"})
        waits_for = conditions if self.answered_before else frozenset[ServiceCondition]({"limited"})
        return WaitRules(waits_for, self.drained, self.answers)

    async def report(self, notice: ServiceNotice) -> None:
        self.notices.append(notice)

    async def warn(self, text: str) -> None:
        self.warnings.append(text)


@dataclass
class FolderWorkspace:
    """A workspace in a folder, without a box: only tests work in it."""

    folder: Path
    commands: list[str] = field(default_factory=list)

    @property
    def root(self) -> str:
        return str(self.folder)

    async def run(
        self, command: str, *, timeout_s: float, extras: Extras = NO_EXTRAS, dialogue: Dialogue | None = None
    ) -> CommandResult:
        del dialogue
        self.commands.append(command)
        with anyio.move_on_after(timeout_s):
            env = {**os.environ, **extras.environment}
            line = ["bash", "-c", f"exec 2>&1\n{command}"]
            done = await anyio.run_process(line, cwd=self.folder, check=False, env=env)
            return CommandResult(done.returncode, done.stdout.decode(errors="surrogateescape"))
        return CommandResult(-1, "", timed_out=True)

    async def read(self, path: str) -> bytes:
        try:
            return self._inside(path).read_bytes()
        except OSError as error:
            raise WorkspaceError(f"{path}: {error.strerror}") from error

    async def write(self, path: str, data: bytes) -> None:
        file = self._inside(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    async def list(self, path: str) -> Sequence[str]:
        folder = self._inside(path)
        if not folder.is_dir():
            raise WorkspaceError(f"{path}: no such folder")
        return [f"{item.name}/" if item.is_dir() else item.name for item in sorted(folder.iterdir())]

    def _inside(self, path: str) -> Path:
        full = (self.folder / path).resolve()
        if not full.is_relative_to(self.folder):
            raise WorkspaceError(f"{path} is outside the worktree")
        return full


@pytest.fixture
def workspace(tmp_path: Path) -> FolderWorkspace:
    folder = tmp_path / "work tree"
    folder.mkdir()
    return FolderWorkspace(folder)


@pytest.fixture
def meter() -> FakeMeter:
    return FakeMeter()


@pytest.fixture
def brief() -> WorkerBrief:
    check = Criterion(criterion="greets", run="test -f hello.txt")
    subtask = Subtask(id="greet", title="Greet", goal="Write hello.txt", acceptance=(check,), touches=("hello.txt",))
    return WorkerBrief(run=RunId("r1"), subtask=subtask, attempt=1, model=None)
