"""The client of an ACP agent: answers permission requests, and serves files and terminals of the worktree.

The agent runs in the sandbox, so permissions don't extend what it can do. Requests are rejected if their result could
not be part of the attempt.
"""

import json
import posixpath
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio
from acp import schema
from anyio.abc import ByteStream, TaskGroup
from pydantic import BaseModel, ValidationError

from agents.models.text import capped, redacted, well_formed
from agents.models.transcripts import Transcript
from agents.workers.acp_host import ASK, HEADER, LINE, NEWS, REPLY
from fleet.core.base.output import parse_json

# ---- link ------------------------------------------------------------------------------------------------------------
# The manager's connection to an agent in its sandbox: lines of the agent, and requests to its host program.
#
# All input comes from the sandbox and is untrusted: frames have a length, and invalid frames end the session.


LONGEST_FRAME = 16 * 1024 * 1024  # bytes: a file of 2 MiB with every byte escaped


class LinkError(Exception):
    """Invalid data from the sandbox."""


class ServingError(Exception):
    """A rejected file or terminal request. The agent sees the reason."""


@dataclass(slots=True)
class HostLink:
    """The stream to the host program in the sandbox."""

    stream: ByteStream
    _asked: int = 0
    _waiting: dict[int, tuple[anyio.Event, list[Mapping[str, Any]]]] = field(default_factory=dict)
    _sending: anyio.Lock = field(default_factory=anyio.Lock)

    async def send(self, line: bytes) -> None:
        """Send the agent a line. Errors are ignored, because the end of the agent is detected when reading."""
        await self._send(LINE, line)

    async def ask(self, do: str, **given: Any) -> Any:
        """Send a request of the agent to the host program. Raises `ServingError`."""
        self._asked += 1
        number, answered = self._asked, anyio.Event()
        replies: list[Mapping[str, Any]] = []
        self._waiting[number] = answered, replies
        try:
            await self._send(ASK, json.dumps({"id": number, "do": do, **given}, ensure_ascii=True).encode())
            await answered.wait()
        finally:
            del self._waiting[number]
        if "result" in replies[0]:
            return replies[0]["result"]
        raise ServingError(str(replies[0].get("refused"))[:500])

    async def events(self) -> AsyncIterator[bytes | Mapping[str, Any]]:
        """Yield the lines of the agent, and events about it. Raises `LinkError`."""
        buffer = bytearray()
        async for chunk in self.stream:
            buffer += chunk
            while len(buffer) >= HEADER.size:
                kind, length = HEADER.unpack_from(buffer)
                if length > LONGEST_FRAME or kind not in {LINE, REPLY, NEWS}:
                    raise LinkError(f"invalid frame: kind {kind!r}, {length} bytes")
                if len(buffer) < HEADER.size + length:
                    break
                payload = bytes(buffer[HEADER.size : HEADER.size + length])
                del buffer[: HEADER.size + length]
                if kind == LINE:
                    yield payload
                elif kind == NEWS:
                    yield _document(payload)
                else:
                    self._take(_document(payload))

    def _take(self, reply: Mapping[str, Any]) -> None:
        number = reply.get("id")
        if isinstance(number, int) and number in self._waiting:
            answered, replies = self._waiting[number]
            replies.append(reply)
            answered.set()

    async def _send(self, kind: bytes, payload: bytes) -> None:
        async with self._sending:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                await self.stream.send(HEADER.pack(kind, len(payload)) + payload)


def _document(payload: bytes) -> Mapping[str, Any]:
    try:
        document = parse_json(payload)
    except ValueError as error:
        raise LinkError(f"invalid JSON: {error}") from error
    if not isinstance(document, dict):
        raise LinkError("not a JSON object")
    return document


# ---- client ----------------------------------------------------------------------------------------------------------


CHANGES = frozenset({"edit", "delete", "move"})
MOST_NOTES = 2_000  # entries of the transcript
MOST_CHARACTERS = 8 * 1024 * 1024  # in these entries
LONGEST_PATH = 4096
LONGEST_NOTE = 4_000  # characters of one text
_SHORT = 300
_GRANTS, _REFUSALS = ("allow_once", "allow_always"), ("reject_once", "reject_always")
Json = Mapping[str, Any]
Model = TypeVar("Model", bound=BaseModel)


@dataclass(slots=True)
class Notes:
    """The transcript of an agent, with limits on its size and without secrets."""

    transcript: Transcript
    secrets: tuple[str, ...] = ()
    left: int = MOST_NOTES
    characters: int = MOST_CHARACTERS

    def write(self, event: str, **data: Any) -> None:
        """Record an action of the agent, up to the limits."""
        if self.left < 0:
            return
        self.left -= 1
        self.characters -= sum(len(each) for each in data.values() if isinstance(each, str))
        if self.left < 0 or self.characters < 0:
            self.left = -1
            self.transcript.write("cut", why="the transcript has reached its size limit")
            return
        self.keep(event, **data)

    def keep(self, event: str, **data: Any) -> None:
        """Record a rare event, regardless of the limits."""
        shown = {name: self.shown(each) if isinstance(each, str) else each for name, each in data.items()}
        self.transcript.write(event, **shown)

    def shown(self, text: str) -> str:
        """Return the agent's text for a transcript or a failure: redacted and shortened."""
        return well_formed(redacted(capped(text, LONGEST_NOTE), self.secrets))


@dataclass(slots=True)
class AcpClient:
    """Serves one session of an agent."""

    link: HostLink
    notes: Notes
    root: str
    session: str = ""
    _served: Mapping[str, Callable[[Json], Awaitable[Json]]] = field(init=False)

    def __post_init__(self) -> None:
        self._served = {
            "session/request_permission": self._permit,
            "fs/read_text_file": self._read,
            "fs/write_text_file": self._write,
            "terminal/create": self._create,
            "terminal/output": self._output,
            "terminal/wait_for_exit": self._wait,
            "terminal/kill": self._kill,
            "terminal/release": self._release,
        }

    async def answer(self, method: str, params: Json) -> Json:
        """Return the result of a request. Raises `RefusalError`."""
        serve = self._served.get(method)
        if serve is None:
            self.notes.write("refused", method=method[:_SHORT], why="unknown")
            raise RefusalError(f"unsupported method {method[:_SHORT]}", UNKNOWN)
        if params.get("sessionId") != self.session or not self.session:
            self.notes.write("refused", method=method, why="session")
            raise RefusalError("unknown session")
        try:
            return await serve(params)
        except ValidationError as error:
            self.notes.write("refused", method=method, why="invalid")
            raise RefusalError(f"invalid parameters (problems: {error.error_count()})") from error
        except (RefusalError, ServingError) as error:
            self.notes.write("refused", method=method, why=str(error))
            raise RefusalError(str(error)) from error

    async def _permit(self, params: Json) -> Json:
        asked = _parsed(schema.RequestPermissionRequest, params)
        call = asked.tool_call
        outside = next((each.path for each in call.locations or () if not self._is_ours(each.path)), None)
        allowed = call.kind not in CHANGES or outside is None
        wanted = _GRANTS if allowed else _REFUSALS
        option = next((each for kind in wanted for each in asked.options if each.kind == kind), None)
        why = "" if allowed else f"{outside} is outside the worktree"
        shown = {"title": (call.title or "")[:_SHORT], "kind": call.kind, "allowed": allowed and option is not None}
        self.notes.write("permission", **shown, option=option.name[:_SHORT] if option else None, why=why)
        if option is None:
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": option.option_id}}

    def _is_ours(self, path: str) -> bool:
        """Whether a path is in the worktree, or in a temporary folder of the sandbox."""
        absolute = posixpath.normpath(posixpath.join(self.root, path))
        if absolute.startswith("/tmp/"):  # noqa: S108 - inside the sandbox
            return True
        inside = absolute.removeprefix(self.root)
        return absolute.startswith(f"{self.root}/") and ".git" not in inside.lower().split("/")

    async def _read(self, params: Json) -> Json:
        asked = _parsed(schema.ReadTextFileRequest, params)
        content = await self.link.ask("read", path=_path(asked.path), line=asked.line, limit=asked.limit)
        self.notes.write("read", path=asked.path)
        return {"content": content}

    async def _write(self, params: Json) -> Json:
        asked = _parsed(schema.WriteTextFileRequest, params)
        await self.link.ask("write", path=_path(asked.path), content=asked.content)
        self.notes.write("write", path=asked.path, characters=len(asked.content))
        return {}

    async def _create(self, params: Json) -> Json:
        asked = _parsed(schema.CreateTerminalRequest, params)
        environment = {each.name: each.value for each in asked.env or ()}
        words = (asked.command, *(asked.args or ()), *environment, *environment.values())
        if any("\0" in word for word in words) or any(not name or "=" in name for name in environment):
            raise RefusalError("the command or one of its environment variables contains an invalid character")
        terminal = await self.link.ask(
            "create",
            command=asked.command,
            args=list(asked.args or ()),
            env=environment,
            cwd=_path(asked.cwd) if asked.cwd else None,
            limit=asked.output_byte_limit,
        )
        self.notes.write("terminal", id=terminal, command=" ".join((asked.command, *(asked.args or ()))))
        return {"terminalId": terminal}

    async def _output(self, params: Json) -> Json:
        asked = _parsed(schema.TerminalOutputRequest, params)
        output: Json = await self.link.ask("output", terminal=asked.terminal_id)
        return {name: value for name, value in output.items() if value is not None}

    async def _wait(self, params: Json) -> Json:
        asked = _parsed(schema.WaitForTerminalExitRequest, params)
        status: Json = await self.link.ask("wait", terminal=asked.terminal_id)
        self.notes.write("terminal", id=asked.terminal_id, **status)
        return status

    async def _kill(self, params: Json) -> Json:
        await self.link.ask("kill", terminal=_parsed(schema.KillTerminalRequest, params).terminal_id)
        return {}

    async def _release(self, params: Json) -> Json:
        await self.link.ask("release", terminal=_parsed(schema.ReleaseTerminalRequest, params).terminal_id)
        return {}


def _parsed(model: type[Model], params: Json) -> Model:
    return model.model_validate(params)


def _path(path: str) -> str:
    if not path.startswith("/") or "\0" in path or len(path) > LONGEST_PATH:
        raise RefusalError("the path is not absolute, is too long or contains a NUL character")
    return path


# ---- rpc -------------------------------------------------------------------------------------------------------------
# JSON-RPC with an untrusted agent: invalid lines are counted, and the session ends if a limit is exceeded.


MOST_GARBAGE = 200  # invalid lines, because some agents print log messages to stdout
MOST_MESSAGES = 200_000
MOST_AT_ONCE = 64  # pending requests of the agent
MOST_BYTES = 512 * 1024 * 1024  # per session
INVALID, UNKNOWN, BUSY = -32602, -32601, -32000
_LONGEST_ID = 200


class EndError(Exception):
    """The session can't continue for the reason in the message."""


class RefusalError(Exception):
    """An error response to a request of the agent."""

    def __init__(self, message: str, code: int = INVALID) -> None:
        super().__init__(message)
        self.code = code


class RpcError(Exception):
    """An error response of the agent."""

    def __init__(self, method: str, error: object) -> None:
        known = error if isinstance(error, dict) else {}
        self.code = known.get("code")
        details = f" ({json.dumps(known['data'])[:500]})" if known.get("data") else ""
        super().__init__(f"{method}: {str(known.get('message', error))[:500]}{details}")


Answer = Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]]
Notice = Callable[[str, Mapping[str, Any]], Awaitable[None]]


@dataclass(slots=True)
class Rpc:
    """One side of a JSON-RPC connection."""

    send_line: Callable[[bytes], Awaitable[None]]
    answer: Answer
    """Answers requests. Raises `RefusalError`."""
    notice: Notice
    tasks: TaskGroup
    garbage: int = 0
    messages: int = 0
    received: int = 0
    at_once: int = 0
    closed: bool = False
    _asked: int = 0
    _waiting: dict[int, tuple[anyio.Event, list[Mapping[str, Any]]]] = field(default_factory=dict)

    async def call(
        self, method: str, params: Mapping[str, Any], *, sent: anyio.Event | None = None
    ) -> Mapping[str, Any]:
        """Send the agent a request, and set the event once it is `sent`. Raises `RpcError`."""
        self._asked += 1
        number, answered = self._asked, anyio.Event()
        replies: list[Mapping[str, Any]] = []
        self._waiting[number] = answered, replies
        if self.closed:
            self.close()
        try:
            await self._send(id=number, method=method, params=params)
            if sent is not None:
                sent.set()
            await answered.wait()
        finally:
            del self._waiting[number]
        result = replies[0].get("result")
        if "error" in replies[0] or not isinstance(result, dict):
            raise RpcError(method, replies[0].get("error", "the answer is not an object"))
        return result

    def close(self) -> None:
        """Fail pending requests, because the agent has exited."""
        self.closed = True
        for answered, replies in self._waiting.values():
            replies.append({"error": {"message": "the agent has exited"}})
            answered.set()

    async def notify(self, method: str, params: Mapping[str, Any]) -> None:
        await self._send(method=method, params=params)

    async def take(self, line: bytes) -> None:
        """Process a line of the agent. Raises `EndError` if a limit is exceeded."""
        self.messages += 1
        self.received += len(line)
        if self.messages > MOST_MESSAGES or self.received > MOST_BYTES:
            raise EndError(f"the agent sent more than {MOST_MESSAGES} messages or {MOST_BYTES} bytes")
        message = _message(line)
        method, number, params = message.get("method"), message.get("id"), message.get("params")
        if isinstance(method, str) and (params is None or isinstance(params, dict)):
            if "id" not in message:
                await self.notice(method, params or {})
            elif isinstance(number, int) or (isinstance(number, str) and len(number) <= _LONGEST_ID):
                await self._begin(number, method, params or {})
            else:
                self._count_garbage()
        elif isinstance(number, int) and number in self._waiting and method is None:
            answered, replies = self._waiting[number]
            replies.append(message)
            answered.set()
        else:
            self._count_garbage()

    async def _begin(self, number: int | str, method: str, params: Mapping[str, Any]) -> None:
        if self.at_once >= MOST_AT_ONCE:
            error = {"code": BUSY, "message": f"{MOST_AT_ONCE} requests are already pending"}
            await self._send(id=number, error=error)
            return
        self.at_once += 1
        self.tasks.start_soon(self._answer, number, method, params)

    async def _answer(self, number: int | str, method: str, params: Mapping[str, Any]) -> None:
        try:
            await self._send(id=number, result=await self.answer(method, params))
        except RefusalError as refusal:
            await self._send(id=number, error={"code": refusal.code, "message": str(refusal)})
        finally:
            self.at_once -= 1

    def _count_garbage(self) -> None:
        self.garbage += 1
        if self.garbage > MOST_GARBAGE:
            raise EndError(f"the agent sent more than {MOST_GARBAGE} invalid lines")

    async def _send(self, **message: Any) -> None:
        await self.send_line(json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=True).encode())


def _message(line: bytes) -> Mapping[str, Any]:
    """Parse a line; empty if it is not a JSON object."""
    try:
        message = parse_json(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}
