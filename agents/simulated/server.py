"""The simulated model's HTTP server: requests in, answers out, faults on the wire.

Listens on loopback by default. Every response has a label that distinguishes it from a real model.
"""

import errno
import itertools
import json
import re
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import anyio
from aiohttp import web
from aiohttp.typedefs import Handler
from pydantic import JsonValue

from agents.simulated.admission import Admitted, FaultSchedule, Rulebook
from agents.simulated.behaviours import (
    BehaviourMessage,
    BehaviourTurn,
    Block,
    BreakStream,
    FaultKey,
    Hang,
    Http,
    Text,
    ToolUse,
    call,
)
from agents.simulated.encoding import Envelope, answer_with, error_body, event, events, halves, message_body, usage_of
from agents.simulated.planner import play_planner
from agents.simulated.prompt import SESSION_ENDING, PromptRequest, RequestError, read_request
from agents.simulated.rules import MODELS, dollars
from agents.simulated.script import AgentScript, Script, ScriptedFinding
from agents.simulated.worker import play_worker, write_commands
from fleet.core.base.output import parse_json
from fleet.errors import FleetError, first_error

LARGEST_BODY = 32 * 1024 * 1024
LABEL = {"x-simulated-model": "fleet"}
PAUSES = 8  # per streamed answer at most, to limit wake-ups with 1,000 streams
PING_S = 1.0
BACKLOG = 2048
STOP_S = 1.0
MOST_LISTED = 100


@web.middleware
async def _refuse_pages(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Reject requests of web pages: those with an origin, or with a host name."""
    if "Origin" in request.headers or not _is_address(request.headers.get("Host", "")):
        body = error_body(403, "requests of web pages are rejected: the Host must be an address or localhost")
        return web.json_response(body, status=403, headers=LABEL)
    return await handler(request)


def _is_address(host: str) -> bool:
    """Whether a Host header is an address or this machine."""
    with suppress(ValueError):
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ip_address(name) is not None
    return False


class SimulatedService:
    """The handlers of one server."""

    def __init__(self, script: Script, now: Callable[[], float] | None = None) -> None:
        """Create the service. `now` is its clock; by default the real one at the script's speed."""
        clock = now or (lambda: time.monotonic() * script.clock_speed)
        self.script = script
        self.model = SimulatedModel(script)
        self.rules = Rulebook(script, clock)
        self.broken: Counter[str] = Counter()
        self.requests = 0
        self._bill: defaultdict[str, float] = defaultdict(float)
        self._faults = FaultSchedule(script.weather, script.seed)
        self._numbers = itertools.count(1)
        self.batches = BatchDesk(script.batch_asks)

    def app(self) -> web.Application:
        app = web.Application(client_max_size=LARGEST_BODY, middlewares=[_refuse_pages])
        app.router.add_get("/healthz", self.healthz)
        app.router.add_get("/troubles", self.troubles)
        app.router.add_get("/v1/models", self.models)
        app.router.add_get("/v1/models/{model}", self.one_model)
        app.router.add_post("/v1/messages", self.messages)
        app.router.add_post("/v1/messages/count_tokens", self.count_tokens)
        app.router.add_post("/v1/messages/batches", self.send_batch)
        app.router.add_get("/v1/messages/batches", self.list_batches)
        app.router.add_get("/v1/messages/batches/{batch}", self.one_batch)
        app.router.add_get("/v1/messages/batches/{batch}/results", self.batch_results)
        app.router.add_route("*", "/{path:.*}", self.unknown)
        return app

    async def healthz(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "label": self.script.label, "simulated": True}, headers=LABEL)

    async def troubles(self, _: web.Request) -> web.Response:
        """Return data for tests: injected faults, requests, broken rules, cost of answers."""
        asked = {"requests": self.requests, "broken": dict(self.broken)}
        counts = {"struck": self.model.struck(), **asked, "dollars": dict(self._bill), "batches": len(self.batches)}
        return web.json_response(counts, headers=LABEL)

    async def unknown(self, received: web.Request) -> web.Response:
        message = f"{received.method} {received.path}: a simulated model only supports POST /v1/messages"
        return self._error(404, message)

    async def models(self, received: web.Request) -> web.Response:
        if "models" in self.script.lacks:
            return await self.unknown(received)
        data = [self.rules.rules(model).info() for model in self._offered()]
        first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
        listed = {"data": data, "has_more": False, "first_id": first, "last_id": last}
        return web.json_response(listed, headers=self._headers())

    async def one_model(self, received: web.Request) -> web.Response:
        if "models" in self.script.lacks:
            return await self.unknown(received)
        try:
            info = self.rules.rules(received.match_info["model"]).info()
        except RequestError as error:
            return self._error(error.status, str(error))
        return web.json_response(info, headers=self._headers())

    def _offered(self) -> tuple[str, ...]:
        return tuple(MODELS) if self.script.models is None else self.script.models

    async def count_tokens(self, received: web.Request) -> web.Response:
        if "count_tokens" in self.script.lacks:
            return await self.unknown(received)
        try:
            self._check_key(received.headers)
            tokens = self.rules.count(_json(await received.read()))
        except RequestError as error:
            return self._error(error.status, str(error))
        return web.json_response({"input_tokens": tokens}, headers=self._headers())

    # ---- batches

    async def send_batch(self, received: web.Request) -> web.Response:
        if "batches" in self.script.lacks:
            return await self.unknown(received)
        headers = received.headers
        try:
            self._refuse_before_reading(headers)
            batch = self.batches.take(_json(await received.read()), lambda params: self._answer_item(params, headers))
        except RequestError as error:
            return self._error(error.status, str(error), retry_after=error.retry_after)
        return web.json_response(batch.document(), headers=self._headers())

    def _answer_item(self, params: object, headers: Mapping[str, str]) -> dict[str, object]:
        """Return the result of a request in a batch."""
        try:
            admitted = self.rules.admit(params, headers)
        except RequestError as error:
            return {"type": "errored", "error": error_body(error.status, str(error))}
        answer = answer_with(
            self.model.turn(read_request(admitted.body)).message, admitted, self.script.thinking_tokens
        )
        envelope = self._envelope(admitted)
        self._bill[admitted.rules.id] += dollars(admitted.rules, usage_of(answer, envelope.prompt)) / 2
        return {"type": "succeeded", "message": message_body(answer, envelope)}

    async def list_batches(self, received: web.Request) -> web.Response:
        if "batches" in self.script.lacks:
            return await self.unknown(received)
        data = [batch.document() for batch in self.batches.latest()][:MOST_LISTED]
        listed = {"data": data, "has_more": False, "first_id": None, "last_id": None}
        return web.json_response(listed, headers=self._headers())

    async def one_batch(self, received: web.Request) -> web.Response:
        try:
            self._check_key(received.headers)
            document = self.batches.look(received.match_info["batch"]).document()
        except RequestError as error:
            return self._error(error.status, str(error))
        return web.json_response(document, headers=self._headers())

    async def batch_results(self, received: web.Request) -> web.Response:
        try:
            self._check_key(received.headers)
            batch = self.batches.find(received.match_info["batch"])
        except RequestError as error:
            return self._error(error.status, str(error))
        if not batch.has_ended:
            return self._error(404, "the batch has no results yet")
        return web.Response(body=batch.lines(), headers={**self._headers(), "content-type": "application/x-jsonl"})

    async def messages(self, received: web.Request) -> web.StreamResponse:
        self.requests += 1
        try:
            self._refuse_before_reading(received.headers)
            admitted = self.rules.admit(_json(await received.read()), received.headers)
        except web.HTTPRequestEntityTooLarge:
            return self._error(413, "Request exceeds the maximum size")
        except RequestError as error:
            if error.status == web.HTTPBadRequest.status_code:
                self.broken[_rule(str(error))] += 1
            return self._error(error.status, str(error), retry_after=error.retry_after, family=error.family)
        request = read_request(admitted.body)
        turn = self.model.turn(request)
        if isinstance(turn.wire_fault, Http):
            return self._http_fault(turn.wire_fault, admitted.rules.line)
        think_s = self.model.think_s(request, turn)
        return await self._answer(received, turn, admitted, think_s=think_s)

    def _refuse_before_reading(self, headers: Mapping[str, str]) -> None:
        """Check the key and fault windows. Raises `RequestError`."""
        self._check_key(headers)
        if window := self._faults.fault_at(time.monotonic()):
            raise RequestError(window.message, window.status, retry_after=window.retry_after)

    def _check_key(self, headers: Mapping[str, str]) -> None:
        key = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        if self.script.api_key is not None and key != self.script.api_key:
            raise RequestError("invalid x-api-key", 401)

    def _envelope(self, admitted: Admitted) -> Envelope:
        extra: dict[str, object] = {}
        if admitted.diagnostics is not None:
            extra["diagnostics"] = admitted.diagnostics
        if admitted.transformations is not None:
            extra["input_transformations"] = admitted.transformations
        return Envelope(f"msg_simulated_{next(self._numbers):06d}", admitted.rules.id, admitted.prompt, extra)

    async def _answer(
        self, received: web.Request, turn: BehaviourTurn, admitted: Admitted, *, think_s: float
    ) -> web.StreamResponse:
        """Send the answer as a stream of events or as one document."""
        streamed, envelope, rules = admitted.body.stream, self._envelope(admitted), admitted.rules
        answer = answer_with(turn.message, admitted, self.script.thinking_tokens)
        kind = "text/event-stream" if streamed else "application/json"
        headers = self._headers(rules.line)
        response = web.StreamResponse(headers={**headers, "cache-control": "no-cache", "content-type": kind})
        frames = list(events(answer, envelope)) if streamed else halves(message_body(answer, envelope))

        def begun() -> None:
            envelope.prompt.begun()
            self.rules.fingerprints.remember(envelope.id, rules.id, admitted.pieces, envelope.prompt.total)

        try:
            if isinstance(turn.wire_fault, Hang):
                await _hang(received, response, turn.wire_fault, streamed=streamed)
            if not response.prepared:
                await response.prepare(received)
            if isinstance(turn.wire_fault, BreakStream):
                begun()
                await _break(received, response, frames[: len(frames) // 2 + streamed], turn.wire_fault, think_s)
                return response
            self.rules.limits.answered(rules.line, answer.output_tokens)
            self._bill[rules.id] += dollars(rules, usage_of(answer, envelope.prompt))
            group_size = max(1, -(-len(frames) // PAUSES))
            for start in range(0, len(frames), group_size):
                group = frames[start : start + group_size]
                await anyio.sleep(think_s * len(group) / len(frames))
                await response.write(b"".join(group))
                begun()
            await response.write_eof()
        except ConnectionError:
            pass  # the client disconnected
        return response

    def _http_fault(self, fault: Http, family: str) -> web.Response:
        if fault.body is not None:
            headers = {**self._headers(family), "content-type": "text/html"}
            return web.Response(body=fault.body.encode(), status=fault.status, headers=headers)
        response = self._error(fault.status, fault.message, retry_after=fault.retry_after, family=family)
        response.headers.update(fault.headers)
        return response

    def _error(self, status: int, message: str, *, retry_after: float | None = None, family: str = "") -> web.Response:
        headers = self._headers(family)
        if retry_after is not None:
            headers["retry-after"] = f"{retry_after:g}"
        return web.json_response(error_body(status, message, headers["request-id"]), status=status, headers=headers)

    def _headers(self, family: str = "") -> dict[str, str]:
        """Return the headers of every response, and the limits of a family of models."""
        number = {"request-id": f"req_simulated_{next(self._numbers):06d}"}
        return LABEL | number | (self.rules.limits.headers(family, datetime.now(UTC)) if family else {})


def _rule(message: str) -> str:
    """Return a message without variable numbers."""
    return re.sub(r"\d+", "N", message)[:200]


def _json(data: bytes) -> object:
    try:
        return parse_json(data)
    except ValueError:
        raise RequestError("The request body is not valid JSON") from None


async def _hang(received: web.Request, response: web.StreamResponse, fault: Hang, *, streamed: bool) -> None:
    """Delay the answer, without data or with pings."""
    if not (fault.pings and streamed):
        await anyio.sleep(fault.seconds)
        return
    await response.prepare(received)
    seconds = fault.seconds
    while seconds > 0:
        await response.write(event("ping", {}))
        await anyio.sleep(min(PING_S, seconds))
        seconds -= PING_S


async def _break(
    received: web.Request, response: web.StreamResponse, frames: list[bytes], fault: BreakStream, think_s: float
) -> None:
    """Send these frames of the answer, then end it in one of three ways."""
    await response.write(frames[0])
    await anyio.sleep(think_s / 2)
    await response.write(b"".join(frames[1:]))
    if fault.how == "reset" or response.content_type != "text/event-stream":
        if received.transport is not None:
            received.transport.abort()
        return
    if fault.how == "error":
        await response.write(event("error", {"error": error_body(529, "Overloaded")["error"]}))
    await response.write_eof()


async def serve(
    script: Script,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    on_ready: Callable[[str], None],
    service: SimulatedService | None = None,
) -> None:
    """Serve until canceled. `on_ready` gets the base URL. Raises `FleetError` if it can't listen."""
    app = (service or SimulatedService(script)).app()
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=STOP_S)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host, port, backlog=BACKLOG).start()
        except OSError as error:
            in_use = "the port is in use (choose another --port, or 0 for any free one)"
            reason = in_use if error.errno == errno.EADDRINUSE else error.strerror or str(error)
            raise FleetError(f"cannot listen on {host}:{port}: {reason}") from None
        address = runner.addresses[0]
        name = f"[{address[0]}]" if ":" in address[0] else address[0]
        on_ready(f"http://{name}:{address[1]}")
        await anyio.sleep_forever()
    finally:
        with anyio.move_on_after(STOP_S * 3, shield=True):
            await runner.cleanup()


def run_simulation(script: Script, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; `announce` gets the URL. Raises `FleetError` if it can't listen."""

    async def serve_and_announce() -> None:
        await serve(script, host, port, on_ready=announce)

    async def run() -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(serve_and_announce)
                async for _ in signals:
                    tasks.cancel_scope.cancel()

    try:
        anyio.run(run)
    except BaseExceptionGroup as group:
        if (expected := group.subgroup(FleetError)) is None:
            raise
        raise first_error(expected) from None


# ---- batches ---------------------------------------------------------------------------------------------------------
# Batches: requests are answered like calls, at half the price, after the number of polls set in the script.


MOST_REQUESTS = 100_000
LONGEST_ID = 64


@dataclass(slots=True)
class MessageBatch:
    """A batch: its answers, and how often it is still reported as unfinished."""

    id: str
    created: datetime
    results: list[dict[str, Any]]
    asks_left: int
    dollars: dict[str, float] = field(default_factory=dict)

    @property
    def has_ended(self) -> bool:
        return self.asks_left <= 0

    def document(self) -> dict[str, Any]:
        """Return the service's status document."""
        kinds = [result["result"]["type"] for result in self.results]
        done = {kind: kinds.count(kind) for kind in ("succeeded", "errored", "canceled", "expired")}
        counts = {"processing": 0, **done} if self.has_ended else {"processing": len(kinds), **dict.fromkeys(done, 0)}
        stamp, ended = self.created.isoformat(), self.has_ended
        return {
            "id": self.id,
            "type": "message_batch",
            "processing_status": "ended" if ended else "in_progress",
            "request_counts": counts,
            "created_at": stamp,
            "ended_at": stamp if ended else None,
            "expires_at": (self.created + timedelta(days=1)).isoformat(),
            "archived_at": None,
            "cancel_initiated_at": None,
            "results_url": f"https://elsewhere.invalid/v1/messages/batches/{self.id}/results" if ended else None,
        }

    def lines(self) -> bytes:
        return b"".join(json.dumps(result).encode() + b"\n" for result in self.results)


class BatchDesk:
    """The batches of a service."""

    def __init__(self, asks: int) -> None:
        self._asks = asks
        self._batches: dict[str, MessageBatch] = {}
        self._numbers = itertools.count(1)

    def take(self, data: object, answer: Callable[[Any], dict[str, Any]]) -> MessageBatch:
        """Answer all requests of a new batch. Raises `RequestError` if it is invalid."""
        requests = data.get("requests") if isinstance(data, dict) else None
        if not isinstance(requests, list) or not 0 < len(requests) <= MOST_REQUESTS:
            raise RequestError("requests: Field required")
        ids = [each.get("custom_id") if isinstance(each, dict) else None for each in requests]
        if not all(isinstance(id_, str) and 0 < len(id_) <= LONGEST_ID for id_ in ids) or len(set(ids)) < len(ids):
            raise RequestError("requests: custom_id: must be unique, with 1 to 64 characters")
        if any("stream" in each.get("params", {}) for each in requests):
            raise RequestError("requests.0.params.stream: streaming is not supported in batches")
        results = [{"custom_id": each["custom_id"], "result": answer(each.get("params"))} for each in requests]
        batch = MessageBatch(f"msgbatch_simulated_{next(self._numbers):06d}", datetime.now(UTC), results, self._asks)
        self._batches[batch.id] = batch
        return batch

    def find(self, id_: str) -> MessageBatch:
        """Raises `RequestError`."""
        if id_ not in self._batches:
            raise RequestError(f"batch {id_!r} not found", 404)
        return self._batches[id_]

    def look(self, id_: str) -> MessageBatch:
        """Return a batch, and count the poll. Raises `RequestError`."""
        batch = self.find(id_)
        batch.asks_left -= 1
        return batch

    def latest(self) -> list[MessageBatch]:
        return list(reversed(self._batches.values()))

    def __len__(self) -> int:
        return len(self._batches)


# ---- model -----------------------------------------------------------------------------------------------------------
# The simulated model without its server: maps a request to a turn. It only remembers which faults have occurred.


class SimulatedModel:
    """Plays a script."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self._struck: Counter[FaultKey] = Counter()

    def turn(self, request: PromptRequest) -> BehaviourTurn:
        """Return the answer to a request, and count its fault."""
        match request.role:
            case "planner":
                turn = play_planner(self.script, request, self._struck.__getitem__)
            case "worker":
                turn = play_worker(self.script, request, self._struck.__getitem__)
            case "reviewer":
                turn = play_reviewer(self.script, request)
            case _:
                turn = BehaviourTurn(_agent_message(self.script.agent, request))
        if turn.fault is not None:
            self._struck[turn.fault] += 1
        if SESSION_ENDING in request.tools:
            blocks = tuple(_for_claude_code(block) for block in turn.message.blocks)
            return replace(turn, message=replace(turn.message, blocks=blocks))
        return turn

    def struck(self) -> list[dict[str, str | int]]:
        """Return the faults that have occurred, with counts, so that a test can check that its faults were injected."""
        return [
            {"run": run, "subtask": subtask, "attempt": number + 1, "depth": depth, "times": times}
            for (run, subtask, number, depth), times in self._struck.items()
        ]

    def think_s(self, request: PromptRequest, turn: BehaviourTurn) -> float:
        """Return the duration of the answer: the pace with a jitter derived from the seed."""
        pace = turn.pace or self.script.pace
        name = f"{self.script.seed}/{request.run}/{request.subtask.get('id')}/{request.attempt}/{len(request.turns)}"
        spread = int.from_bytes(sha256(name.encode("utf-8", "replace")).digest()[:4]) / 2**32
        return pace.think_s * (1 + pace.jitter * (2 * spread - 1))


def _agent_message(script: AgentScript, request: PromptRequest) -> BehaviourMessage:
    """Return the next call of another program's agent, or its last message if the tool is not available."""
    done = request.done("call")
    if done < len(script.calls) and (scripted := script.calls[done]).tool in request.tools:
        return BehaviourMessage((Text("I use a tool."), call("call", done, scripted.tool, scripted.input)))
    return BehaviourMessage((Text(script.says),), "end_turn")


def _for_claude_code(block: Block) -> Block:
    """Convert an action to the tools of Claude Code. Call ids are kept, because they are the only state."""
    if not isinstance(block, ToolUse):
        return block
    match block.name:
        case "bash":
            return replace(block, name="Bash", input=_command(str(block.input.get("command", ""))))
        case "str_replace_based_edit_tool":
            path, text = str(block.input.get("path", "")), str(block.input.get("file_text", ""))
            return replace(block, name="Bash", input=_command(write_commands({path: text})[0]))
        case "report":
            return replace(block, name=SESSION_ENDING)
        case _:
            return block


def _command(command: str) -> dict[str, JsonValue]:
    return {"command": command, "description": "The next step of a simulated worker"}


# ---- reviewer --------------------------------------------------------------------------------------------------------
# The next turn of a simulated reviewer, derived from the script and the request: the scripted findings.


SUBMIT = "submit_review"
_FILE = re.compile(r"^=== (.*)$")
_LINE = re.compile(r"^ *(\d+) ([+ -]) (.*)$")


def play_reviewer(script: Script, request: PromptRequest) -> BehaviourTurn:
    """Return the findings of the reviewer of the request's change."""
    part = script.reviewer(str(request.subtask.get("id", "")))
    if part is None:
        return _submit([])
    if (
        part.obeys and part.obeys in request.ours
    ):  # the client's text contains an instruction to approve, which must never come from the change
        return _submit([])
    findings = part.attempts[min(request.attempt, len(part.attempts)) - 1] if part.attempts else ()
    vote = request.review.get("vote")
    found = [_found(finding, request.change) for finding in findings if not finding.votes or vote in finding.votes]
    return _submit([each for each in found if each is not None])


def _submit(findings: list[JsonValue]) -> BehaviourTurn:
    return BehaviourTurn(BehaviourMessage((call("submit", 0, SUBMIT, {"findings": findings}),)))


def _found(finding: ScriptedFinding, change: str) -> JsonValue:
    """Return a finding in the tool's format; None if the change has no line with its text."""
    if finding.text is None:
        return {"file": finding.file, "line": finding.line, "problem": finding.problem}
    for file, line, text in _lines(change):
        if finding.text in text and finding.file in {"", file}:
            return {"file": file, "line": line, "problem": finding.problem}
    return None


def _lines(change: str) -> Iterator[tuple[str, int, str]]:
    file = ""
    for line in change.splitlines():
        if head := _FILE.match(line):
            file = head[1]
        elif (match := _LINE.match(line)) and match[2] == "+":
            yield file, int(match[1]), match[3]
