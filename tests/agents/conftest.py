"""A model that says what a test scripts, over real HTTP; a desk in a real folder; a repository of a few files."""

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest
from aiohttp import web

from agents.minds import Minds, open_minds, patience_of
from agents.models.answer import Answer, CallFault, Request
from agents.models.calls import Caller
from agents.models.claude import Claude, Line, open_claude
from agents.settings import MindSettings
from fleet.core.facts import Failure, ServiceCondition
from fleet.core.plan import Criterion, Subtask
from fleet.core.usage import Cost
from fleet.ports import NO_EXTRAS, CommandResult, DeskError, Extras, ModelUse, ServiceNews, WorkerBrief

Body = dict[str, Any]
Reply = Callable[[web.Request], Awaitable[web.StreamResponse]]
KEY = "sk-test-0123456789"
SEEDED = Random(1)  # noqa: S311 - jitter is no secret


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK merges these into every call, whatever it is told."""
    monkeypatch.delenv("ANTHROPIC_CUSTOM_HEADERS", raising=False)
    monkeypatch.delenv("ANTHROPIC_LOG", raising=False)


# ---- replies ----


def events(
    blocks: Sequence[Body], *, stop: str | None = "tool_use", model: str = "claude-haiku-5-5"
) -> list[tuple[str, Body]]:
    """A message as the service streams it."""
    usage = {"input_tokens": 10, "output_tokens": 1, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 5}
    start = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [], "usage": usage}
    told: list[tuple[str, Body]] = [("message_start", {"message": start})]
    for index, block in enumerate(blocks):
        empty, deltas = _pieces(block)
        told.append(("content_block_start", {"index": index, "content_block": empty}))
        told += [("content_block_delta", {"index": index, "delta": delta}) for delta in deltas]
        told.append(("content_block_stop", {"index": index}))
    told.append(("message_delta", {"delta": {"stop_reason": stop}, "usage": {"output_tokens": 20}}))
    told.append(("message_stop", {}))
    return [(name, {"type": name, **data}) for name, data in told]


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


def sse(told: Sequence[tuple[str, Body]], *, then: str = "end", headers: dict[str, str] | None = None) -> Reply:
    """Streams events; `then` the stream ends, hangs, or goes on with pings."""

    async def reply(request: web.Request) -> web.StreamResponse:
        said = {"content-type": "text/event-stream", "request-id": "req_1", **(headers or {})}
        response = web.StreamResponse(headers=said)
        await response.prepare(request)
        for name, data in told:
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
    """What the model will say, and what it was asked. The last reply is repeated."""

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


def settings_for(script: Script, folder: Path, **changes: Any) -> MindSettings:
    quick = {"backoff_first_s": 0.001, "backoff_cap_s": 0.002, "pause_s": 0.001, "retries": 3}
    return MindSettings(base_url=script.url, api_key=KEY, transcripts=folder / "transcripts", **{**quick, **changes})


@asynccontextmanager
async def minds_for(script: Script, folder: Path, **changes: Any) -> AsyncIterator[Minds]:
    async with open_minds(settings_for(script, folder, **changes), chance=SEEDED) as minds:
        yield minds


@asynccontextmanager
async def client_for(script: Script, *, silence_s: float = 5, call_s: float = 10) -> AsyncIterator[Claude]:
    async with open_claude(script.url, KEY, Line(connect_s=5, silence_s=silence_s, call_s=call_s)) as claude:
        yield claude


class Nobody:
    """The model of a caller that only passes calls on."""

    async def ask(self, request: Request) -> Answer | CallFault:
        raise AssertionError(request)


def caller_for(settings: MindSettings) -> Caller:
    return Caller(Nobody(), patience_of(settings), settings.prices, chance=SEEDED)


# ---- the surroundings ----


@dataclass
class Purse:
    """A meter that allows so many calls."""

    calls: int = 1000
    uses: list[ModelUse] = field(default_factory=list)
    reserved: list[Cost] = field(default_factory=list)
    released: list[bool] = field(default_factory=list)
    answered_before: bool = False
    """Whether a model ever answered: what fails then is waited for."""
    news: list[ServiceNews] = field(default_factory=list)
    said: int = 0
    """Words of a human."""
    drained: bool = False
    """Whether nothing may wait any more."""

    def may_call(self) -> bool:
        return len(self.uses) < self.calls

    async def reserve(self, model: str, cost: Cost) -> Failure | None:
        del model
        self.reserved.append(cost)
        return None if self.may_call() else Failure(kind="spent", summary="the budget is spent")

    async def used(self, use: ModelUse) -> None:
        self.uses.append(use)

    def release(self, *, lost: bool = False) -> None:
        self.released.append(lost)

    def waits_for(self, condition: ServiceCondition) -> bool:
        return condition == "limited" or self.answered_before

    def words(self) -> int:
        return self.said

    def may_wait(self) -> bool:
        return not self.drained

    async def noticed(self, news: ServiceNews) -> None:
        self.news.append(news)


@dataclass
class FolderDesk:
    """A desk in a folder, without a box: the tests are the only ones who work here."""

    folder: Path
    commands: list[str] = field(default_factory=list)

    @property
    def root(self) -> str:
        return str(self.folder)

    async def run(self, command: str, *, timeout_s: float, extras: Extras = NO_EXTRAS) -> CommandResult:
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
            raise DeskError(f"{path}: {error.strerror}") from error

    async def write(self, path: str, data: bytes) -> None:
        file = self._inside(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    async def list(self, path: str) -> Sequence[str]:
        folder = self._inside(path)
        if not folder.is_dir():
            raise DeskError(f"{path}: no such folder")
        return [f"{item.name}/" if item.is_dir() else item.name for item in sorted(folder.iterdir())]

    def _inside(self, path: str) -> Path:
        full = (self.folder / path).resolve()
        if not full.is_relative_to(self.folder):
            raise DeskError(f"{path} is outside the worktree")
        return full


@dataclass
class Files:
    """A repository of a few files."""

    files: dict[str, str] = field(default_factory=dict)

    async def list_files(self, pattern: str | None = None) -> Sequence[str]:
        return sorted(path for path in self.files if pattern is None or fnmatch(path, pattern))

    async def read_file(self, path: str) -> str:
        if path not in self.files:
            raise DeskError(f"there is no {path}")
        return self.files[path]

    async def search(self, text: str, pattern: str | None = None) -> str:
        found = (
            f"{path}:{number}: {line}"
            for path in await self.list_files(pattern)
            for number, line in enumerate(self.files[path].splitlines(), start=1)
            if text in line
        )
        return "\n".join(found)

    async def history(self, path: str | None = None, limit: int = 20) -> str:
        return f"the last {limit} commits of {path or 'everything'}"


@pytest.fixture
def desk(tmp_path: Path) -> FolderDesk:
    folder = tmp_path / "work tree"
    folder.mkdir()
    return FolderDesk(folder)


@pytest.fixture
def purse() -> Purse:
    return Purse()


@pytest.fixture
def brief() -> WorkerBrief:
    check = Criterion(criterion="greets", run="test -f hello.txt")
    subtask = Subtask(id="greet", title="Greet", goal="Write hello.txt", acceptance=(check,), touches=("hello.txt",))
    return WorkerBrief(run="r1", subtask=subtask, attempt=1, model=None)
