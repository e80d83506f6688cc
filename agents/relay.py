"""A way out of the box to one service and nowhere else: a socket that an agent in the box speaks the Messages API to.

Every request is checked, counted and written down here, outside; only here does it get the key. An agent that was built
by others is held to the same limits as our own workers, whatever it tries.
"""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import anyio
from aiohttp import web

from agents.models.answer import CHARACTERS_PER_TOKEN, Answer, Begun, CallFault
from agents.models.calls import Caller, Errand, as_failure
from agents.models.faults import from_error, headroom, shortened
from agents.models.stream import Fold, Senseless
from agents.settings import MindSettings
from agents.transcripts import Transcript
from fleet.core.facts import Failure
from fleet.core.usage import Usage
from fleet.ports import Broken, Drained, Meter

LARGEST_BODY = 32 * 1024 * 1024
FORWARDED = ("anthropic-version", "anthropic-beta", "content-type", "user-agent")
RETURNED = ("content-type", "request-id", "retry-after", "retry-after-ms", "x-should-retry")
CALL, COUNT = "/v1/messages", "/v1/messages/count_tokens"
_CHUNK, _REFUSAL = 64 * 1024, 64 * 1024  # bytes
_STOP_S = 2.0
_LOOK_S = 0.2  # how often it is seen whether an agent is still there


class Stopped(Exception):  # noqa: N818 - it never leaves the relay
    """The attempt ended while a call was under way that had no answer yet."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What an agent may ask for."""

    model: str
    turns: int


@dataclass(slots=True)
class Relay:
    """Forwards the calls of one attempt. What went wrong last is kept for whoever has to say why it failed."""

    settings: MindSettings
    terms: Terms
    caller: Caller
    meter: Meter
    transcript: Transcript
    http: aiohttp.ClientSession
    calls: int = 0
    refused: Failure | None = None
    """The limit that an agent ran into."""
    failure: Failure | None = None
    """Why the last call had no answer."""
    drained: bool = False
    """Whether a call was not made because it would have had to wait, and the run is drained."""
    _turn: anyio.Lock = field(default_factory=anyio.Lock)
    _open: "list[Passing]" = field(default_factory=list)

    async def handle(self, asked: web.Request) -> web.StreamResponse:
        """One request from the box."""
        if asked.method != "POST" or asked.path not in {CALL, COUNT}:
            return _error(404, "not_found_error", f"{asked.method} {asked.path} is not forwarded")
        body = await asked.read()
        said = _object(body)
        if (wrong := _wrong(said, self.terms.model)) is not None:
            return _error(400, "invalid_request_error", wrong)
        if asked.path == COUNT:
            return await self._count(asked, body)
        async with self._turn:  # one at a time: a budget is never exceeded by more than one call
            if self.calls >= self.terms.turns:
                return self._no(Failure(kind="budget", summary=f"no report after {self.terms.turns} turns"))
            return await self._call(asked, body, said)

    async def _call(self, asked: web.Request, body: bytes, said: Mapping[str, Any]) -> web.StreamResponse:
        """One call among all of the fleet: it waits for its turn, is tried again, paid and counted as the others."""
        passing = Passing(self, asked, body)
        errand = Errand(self.terms.model, self._most(said, len(body)), passing.ask, lambda: passing.response is None)
        turn = self.calls + 1
        result: Answer | CallFault | Failure | None = None
        self._open.append(passing)
        async with anyio.create_task_group() as sides:
            passing.waiting = sides.cancel_scope
            sides.start_soon(passing.wait_gone)
            try:
                result = await self.caller.place(errand, self.meter, self.transcript, turn=turn)
            except Drained:
                self.drained = True
            except Stopped:
                pass
            sides.cancel_scope.cancel()
        self._open.remove(passing)
        return self._heard(passing, result, turn)

    def _heard(self, passing: "Passing", result: Answer | CallFault | Failure | None, turn: int) -> web.StreamResponse:
        """What came of a call, kept for whoever has to tell; and what the agent is told."""
        match result:
            case Answer():
                self.calls, self.failure = turn, None
                told = {"stop_reason": result.stop_reason, "usage": result.usage.model_dump(), "content": result.blocks}
                self.transcript.write("answer", turn=turn, model=result.model, **told)
            case CallFault():
                self.calls, self.failure = turn, as_failure(result, self.terms.model)
            case Failure():
                return self._no(result)
            case None:
                return _error(403, "permission_error", "the attempt is over")
        return passing.response or passing.refusal or _error(502, "api_error", self.without_key(_said(result)))

    def _no(self, limit: Failure) -> web.Response:
        self.refused = limit
        return _error(403, "permission_error", limit.summary)

    def _most(self, said: Mapping[str, Any], size: int) -> Usage:
        """What a call may use."""
        longest = said.get("max_tokens")
        output = longest if isinstance(longest, int) and longest > 0 else self.settings.max_tokens
        return Usage(cache_write=size // CHARACTERS_PER_TOKEN + 1, output=output)

    async def _count(self, asked: web.Request, body: bytes) -> web.StreamResponse:
        """Counting tokens is free, and no call to a model."""
        try:
            async with self.post(asked, body) as answer:
                said = await answer.content.read(_REFUSAL)
                return web.Response(status=answer.status, body=self.clean(said), headers=_kept(answer.headers))
        except (aiohttp.ClientError, TimeoutError) as error:
            return _error(502, "api_error", self.without_key(shortened(f"{type(error).__name__}: {error}")))

    def post(self, asked: web.Request, body: bytes) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """The same request to the service, with our key."""
        headers = {name: asked.headers[name] for name in FORWARDED if name in asked.headers}
        headers |= {"x-api-key": self.settings.api_key, "accept-encoding": "identity"}
        url = self.settings.base_url.rstrip("/") + asked.path_qs
        return self.http.post(url, data=body, headers=headers, allow_redirects=False)

    def close(self) -> None:
        """Break off what is under way: nobody is left to hear it."""
        for passing in self._open:
            passing.stop()

    def clean(self, said: bytes) -> bytes:
        return self.without_key(said.decode("utf-8", "replace")).encode()

    def without_key(self, text: str) -> str:
        return text.replace(self.settings.api_key, "[key]")


@dataclass(slots=True)
class Passing:
    """One call on its way to the service, and its answer on the way back. What it used is known, also of a half."""

    relay: Relay
    asked: web.Request
    body: bytes
    response: web.StreamResponse | None = None
    """The answer, once it has begun to reach the agent: from there on nothing can be tried again."""
    refusal: web.Response | None = None
    """What the service said instead, the last time."""
    waiting: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """In which it waits for its turn."""
    _fold: Fold = field(default_factory=Fold)
    _underway: anyio.CancelScope | None = None
    """While the service has it."""
    _broken: CallFault | None = None
    _left: bytes = b""
    _all: bytearray = field(default_factory=bytearray)

    def stop(self) -> None:
        (self._underway or self.waiting).cancel()

    async def wait_gone(self) -> None:
        """An agent that hung up is not waited for. What is under way ends by itself, because it is paid for."""
        while self._underway or not self._gone():  # noqa: ASYNC110 - nobody tells of a client that goes away
            await anyio.sleep(_LOOK_S)
        self.waiting.cancel()

    def _gone(self) -> bool:
        return self.asked.transport is None or self.asked.transport.is_closing()

    async def ask(self, begun: Begun) -> Answer | CallFault:
        """Pass the request on and its answer back. Raises `Stopped` where the attempt ends before an answer began."""
        began = anyio.current_time()
        self._fold, self._left, self._broken = Fold(), b"", None
        self._all.clear()
        fault: CallFault | None = None
        with anyio.CancelScope() as scope:
            self._underway = scope
            try:
                fault = await self._passed_on(begun)
            except (aiohttp.ClientError, TimeoutError) as error:
                fault = CallFault("outage", self.relay.without_key(shortened(f"{type(error).__name__}: {error}")))
        self._underway = None
        if scope.cancelled_caught and not self._fold.begun:
            raise Stopped
        seconds = anyio.current_time() - began
        if fault is None:
            return self._fold.answer(request_id=None, seconds=seconds)
        return replace(fault, usage=self._fold.usage if self._fold.begun else None, seconds=seconds)

    async def _passed_on(self, begun: Begun) -> CallFault | None:
        async with self.relay.post(self.asked, self.body) as answer:
            if answer.status != web.HTTPOk.status_code:
                return await self._refused(answer)
            self.response = response = web.StreamResponse(headers=_kept(answer.headers))
            await response.prepare(self.asked)
            try:
                async for chunk in answer.content.iter_chunked(_CHUNK):
                    self._hear(chunk)
                    if self._fold.begun:
                        begun(headroom(answer.headers))
                    await response.write(chunk)
                await response.write_eof()
            except (aiohttp.ClientError, TimeoutError):
                if self.asked.transport is not None:
                    self.asked.transport.abort()  # its reader sees that it was cut off
        if not self._fold.begun and self._all[:1] == b"{":
            self._take_document(_object(bytes(self._all)))
        return self._broken

    def _hear(self, chunk: bytes) -> None:
        if len(self._all) < LARGEST_BODY:
            self._all += chunk
        *frames, self._left = (self._left + chunk).split(b"\n\n")
        lines = (line for frame in frames for line in frame.splitlines() if line.startswith(b"data:"))
        self._take([_object(line[5:]) for line in lines])

    def _take(self, events: Sequence[Mapping[str, Any]]) -> None:
        """What makes no sense goes to the agent all the same, and is no answer to us."""
        try:
            for event in events:
                self._fold.take(event)
        except Senseless as error:
            self._broken = CallFault("broken", f"the answer makes no sense: {error}")

    async def _refused(self, answer: aiohttp.ClientResponse) -> CallFault:
        """What the service says instead of an answer. Some say which key they were given."""
        body = self.relay.clean(await answer.content.read(_REFUSAL))
        self.refusal = web.Response(status=answer.status, body=body, headers=_kept(answer.headers))
        said = _object(body).get("error")
        error = said if isinstance(said, dict) else {}
        return from_error(
            answer.status,
            type_=str(error.get("type") or "") or None,
            code=None,
            message=str(error.get("message") or "no message"),
            headers=answer.headers,
            now=datetime.now(UTC),
        )

    def _take_document(self, message: Mapping[str, Any]) -> None:
        """An answer that was not streamed."""
        whole = ({"type": "message_start", "message": message}, {"type": "message_delta", "delta": message})
        self._take((*whole, {"type": "message_stop"}))


@asynccontextmanager
async def open_relay(
    socket: Path, settings: MindSettings, terms: Terms, caller: Caller, *, meter: Meter, transcript: Transcript
) -> AsyncIterator[Relay]:
    """A relay that listens at `socket` while the block lasts. Raises `Broken` where it can't."""
    timeout = aiohttp.ClientTimeout(
        total=settings.call_s, sock_connect=settings.connect_s, sock_read=settings.silence_s
    )
    async with aiohttp.ClientSession(timeout=timeout, trust_env=False, cookie_jar=aiohttp.DummyCookieJar()) as http:
        relay = Relay(settings, terms, caller, meter, transcript, http)
        app = web.Application(client_max_size=LARGEST_BODY)
        app.router.add_route("*", "/{path:.*}", relay.handle)
        # A handler is not ended when its client goes: what was used has to be charged all the same.
        runner = web.AppRunner(app, access_log=None, handler_cancellation=False, shutdown_timeout=_STOP_S)
        await runner.setup()
        try:
            try:
                await web.UnixSite(runner, str(socket)).start()
            except OSError as error:
                why = f"the way to the model's service can't be opened: {socket}: {error.strerror}"
                raise Broken(Failure(kind="infrastructure", summary=why)) from error
            yield relay
        finally:
            relay.close()
            with anyio.move_on_after(2 * _STOP_S, shield=True):
                await runner.cleanup()


def _wrong(asked: Mapping[str, Any], model: str) -> str | None:
    if not asked:
        return "the body is no JSON object"
    return None if asked.get("model") == model else f"this attempt works with {model} and no other model"


def _object(data: bytes) -> Mapping[str, Any]:
    """The JSON object in `data`, or an empty one."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _kept(headers: Mapping[str, str]) -> dict[str, str]:
    return {name: headers[name] for name in RETURNED if name in headers}


def _said(result: Answer | CallFault) -> str:
    return result.message if isinstance(result, CallFault) else "the answer never began"


def _error(status: int, type_: str, message: str) -> web.Response:
    headers = {"x-should-retry": "false"} if status < 500 else {}  # noqa: PLR2004 - HTTP's own
    body = {"type": "error", "error": {"type": type_, "message": message}}
    return web.json_response(body, status=status, headers=headers)
