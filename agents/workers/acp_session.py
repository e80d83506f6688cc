"""A running session with an ACP agent: its prompt, the operator's instructions, and its end.

An instruction becomes a separate prompt after the current turn. An interrupting instruction ends that turn.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import anyio
from acp import schema
from acp.meta import PROTOCOL_VERSION
from acp.schema import PromptResponse
from anyio.abc import ByteStream
from pydantic import ValidationError

from agents.conversation.guards import AttemptBudget
from agents.models.text import operator_text
from agents.workers.acp_client import AcpClient, EndError, HostLink, LinkError, Notes, Rpc, RpcError
from fleet import __version__
from fleet.core.base.usage import Usage
from fleet.core.facts.facts import Failure, FailureKind
from fleet.ports.agents import ModelUse
from fleet.ports.operator import Operator

START_S = 120.0  # how long an agent may take to start
CANCEL_S = 30.0  # and to end a turn after a cancel request
LONGEST_TEXT = 24_000  # characters of the agent's last message
LOGIN = -32000  # the protocol's code for a session that needs a login
_ENDINGS: dict[str, tuple[FailureKind, str]] = {
    "max_tokens": ("budget", "the agent's answer was too long for its model"),
    "max_turn_requests": ("budget", "the agent reached its own limit of requests"),
    "refusal": ("refusal", "the agent's model refused"),
    "cancelled": ("tool", "the agent ended its turn as canceled, without a request"),
}
Json = Mapping[str, Any]
Charge = Callable[[float | None, str, schema.PromptResponse | None], Awaitable[Failure | None]]
"""Records the total cost reported by the agent, or the end of a turn. Returns a failure if it has to stop."""


@dataclass(slots=True)
class Session:
    """Implements `Dialogue` with `hold`."""

    prompt: str
    root: str
    operator: Operator
    notes: Notes
    charge: Charge
    text: str = ""
    """The agent's last message."""
    failure: Failure | None = None
    is_over: bool = False
    """Whether the agent ended its last turn on its own."""
    _client: AcpClient | None = None
    _ready: anyio.Event = field(default_factory=anyio.Event)
    _report: str = ""
    _name: str = ""

    async def hold(self, stream: ByteStream) -> None:
        """Run the session until the agent is done, has exited or has to stop."""
        link = HostLink(stream)
        async with anyio.create_task_group() as tasks:
            client = self._client = AcpClient(link, self.notes, self.root)
            rpc = Rpc(link.send, client.answer, self._notice, tasks)
            tasks.start_soon(self._listen, link, rpc)
            await self._work(rpc, client)
            tasks.cancel_scope.cancel()

    def _fail(self, why: str, kind: FailureKind = "tool") -> None:
        if self.failure is None:
            self.failure = Failure(kind=kind, summary=self.notes.shown(why))

    async def _listen(self, link: HostLink, rpc: Rpc) -> None:
        """Process the agent's messages until it exits or exceeds a limit."""
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            try:
                async for event in link.events():
                    if isinstance(event, bytes):
                        await rpc.take(event)
                    elif self._is_end(event):
                        break
            except (EndError, LinkError) as error:
                self._fail(str(error), "protocol")
        self._ready.set()
        rpc.close()

    def _is_end(self, news: Json) -> bool:
        if "report" in news:
            self._report = str(news["report"])[:1000]
            self._ready.set()
        elif "skipped" in news:
            self.notes.write("skipped", bytes=news["skipped"])
        return "ended" in news

    async def _work(self, rpc: Rpc, client: AcpClient) -> None:
        with anyio.move_on_after(START_S) as start:
            await self._ready.wait()
            if not await self._open(rpc, client):
                return
        if start.cancelled_caught:
            self._fail(f"the agent was not ready within {START_S:g} s")
            return
        blocks = [self.prompt, f"Write your report to {self._report}"]
        while blocks and self.failure is None:
            self.is_over, self.text = False, ""
            stop = await self._turn(rpc, client.session, blocks)
            told = await self.operator.read()
            blocks = [operator_text(each) for each in told]
            if blocks:
                self.notes.keep("operator", content=[{"type": "text", "text": each} for each in blocks])
            elif stop in _ENDINGS:
                kind, why = _ENDINGS[stop]
                self._fail(why, kind)
            else:
                self.is_over = stop == "end_turn"

    async def _open(self, rpc: Rpc, client: AcpClient) -> bool:
        """Negotiate a version and start a session."""
        files = schema.FileSystemCapabilities(read_text_file=True, write_text_file=True)
        hello = schema.InitializeRequest(
            protocol_version=PROTOCOL_VERSION,
            client_capabilities=schema.ClientCapabilities(fs=files, terminal=True),
            client_info=schema.Implementation(name="fleet", version=__version__),
        )
        try:
            agent = schema.InitializeResponse.model_validate(await rpc.call("initialize", _dump(hello)))
            if agent.protocol_version != PROTOCOL_VERSION:
                why = f"the agent uses version {agent.protocol_version} of the protocol, not {PROTOCOL_VERSION}"
                self._fail(why, "configuration")
                return False
            self._name = agent.agent_info.name[:100] if agent.agent_info else ""
            request = schema.NewSessionRequest(cwd=self.root, mcp_servers=[])
            session = schema.NewSessionResponse.model_validate(await rpc.call("session/new", _dump(request)))
        except RpcError as error:
            needs_login = error.code == LOGIN
            hint = ". Pass its key with pass_environment, or set `model`" if needs_login else ""
            self._fail(f"{error}{hint}", "configuration" if needs_login else "tool")
            return False
        except ValidationError as error:
            self._fail(f"the agent's first answer is invalid (problems: {error.error_count()})", "protocol")
            return False
        client.session = session.session_id
        self.notes.keep("session", agent=self._name, session=client.session[:200])
        return True

    async def _turn(self, rpc: Rpc, session: str, blocks: list[str]) -> str:
        """Run a turn. Return the reason for its end."""
        content = [schema.TextContentBlock(type="text", text=each) for each in blocks]
        request = schema.PromptRequest(session_id=session, prompt=content)
        reply: schema.PromptResponse | None = None
        sent = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch_interrupt, rpc, session, sent, tasks.cancel_scope)
            try:
                reply = schema.PromptResponse.model_validate(
                    await rpc.call("session/prompt", _dump(request), sent=sent)
                )
            except ValidationError as error:
                self._fail(
                    f"the agent ended its turn with an invalid answer (problems: {error.error_count()})", "protocol"
                )
            except RpcError as error:
                self._fail(str(error))
            tasks.cancel_scope.cancel()
        self.failure = self.failure or await self.charge(None, self._name, reply)
        stop = str(reply.stop_reason) if reply is not None else ""
        self.notes.keep("turn", stop=stop, text=self.text)
        return stop

    async def _watch_interrupt(self, rpc: Rpc, session: str, sent: anyio.Event, scope: anyio.CancelScope) -> None:
        """Cancel the current turn, once it has started, for an interrupting instruction."""
        await sent.wait()
        await self.operator.wait_interrupt()
        await rpc.notify("session/cancel", _dump(schema.CancelNotification(session_id=session)))
        await anyio.sleep(CANCEL_S)
        self._fail(f"the agent did not end its turn within {CANCEL_S:g} s after a cancel request")
        scope.cancel()

    async def _notice(self, method: str, params: Json) -> None:
        """Process an update of the session. Unknown or invalid updates are ignored, because they are not essential."""
        update, client = params.get("update"), self._client
        if method != "session/update" or not isinstance(update, dict) or client is None:
            return
        if not client.session or params.get("sessionId") != client.session:
            self.notes.write("refused", method=method, why="session")
            return
        with suppress(ValidationError):
            match update.get("sessionUpdate"):
                case "agent_message_chunk":
                    chunk = schema.AgentMessageChunk.model_validate(update)
                    if isinstance(chunk.content, schema.TextContentBlock):
                        self.text = (self.text + chunk.content.text)[-LONGEST_TEXT:]
                case "tool_call":
                    call = schema.ToolCallStart.model_validate(update)
                    given = json.dumps(call.raw_input, default=str)[:2_000] if call.raw_input is not None else ""
                    self.notes.write("tool_call", title=call.title, kind=call.kind, input=given)
                    self.text = ""
                case "tool_call_update":
                    progress = schema.ToolCallProgress.model_validate(update)
                    if progress.status in {"completed", "failed"}:
                        self.notes.write("tool_result", id=progress.tool_call_id[:200], status=progress.status)
                case "usage_update":
                    await self._charge(schema.UsageUpdate.model_validate(update))

    async def _charge(self, update: schema.UsageUpdate) -> None:
        cost = update.cost
        if cost is None or cost.currency.upper() != "USD":
            return
        failure = await self.charge(cost.amount, self._name, None)
        if failure is not None:
            self.failure = self.failure or failure
            raise EndError(failure.summary)


def _dump(message: Any) -> Json:
    document: Json = message.model_dump(mode="json", by_alias=True, exclude_none=True)
    return document


# ---- usage -----------------------------------------------------------------------------------------------------------
# The usage reported by an agent that uses its own account. It can't be verified, only checked for plausibility.


MOST_DOLLARS = 10_000.0  # per attempt: a plausible upper bound
MOST_TOKENS = 10_000_000_000
NOTHING = Usage()
STEP, SHARE = 0.01, 0.01
"""A cost is recorded once it has grown by this amount and this share, because an agent may report it often."""


@dataclass(slots=True)
class Claims:
    """Charges an attempt for the usage that its agent reports. The total never decreases."""

    budget: AttemptBudget
    model: str | None
    agent: str = "acp"
    claimed: float = 0.0
    charged: float = 0.0
    turns: int = 0
    _since: float = field(default_factory=anyio.current_time)

    async def charge(self, dollars: float | None, agent: str, turn: PromptResponse | None) -> Failure | None:
        """Record the cost of the session so far, or the end of a turn. Return a failure if the budget is used up."""
        if dollars is not None and isfinite(dollars):
            self.claimed = max(self.claimed, min(dollars, MOST_DOLLARS))
        usage = NOTHING
        if turn is not None:
            self.turns += 1
            usage = _usage(turn)
        self.agent = agent or self.agent
        if usage.total or turn is not None or self._due >= max(STEP, self.claimed * SHARE):
            await self.settle(usage)
        if self.budget.exhausted is not None:
            return Failure(kind="budget", summary=self.budget.exhausted)
        if not self.budget.may_call():
            return Failure(kind="spent", summary="the budget is used up")
        return None

    async def settle(self, usage: Usage = NOTHING) -> None:
        """Charge the remaining cost and these tokens. Their cost is unknown if the agent does not report it."""
        if not usage.total and not self._due:
            return
        now = anyio.current_time()
        use = ModelUse(
            self.model or self.agent, usage, self._due if self.claimed else None, now - self._since, self.turns, "works"
        )
        self.charged, self._since = self.claimed, now
        await self.budget.used(use)

    @property
    def _due(self) -> float:
        return self.claimed - self.charged


def _usage(turn: PromptResponse) -> Usage:
    """Return the tokens of a turn, if the agent counts them."""
    said = turn.usage
    if said is None:
        return NOTHING
    read, write = min(said.cached_read_tokens or 0, MOST_TOKENS), min(said.cached_write_tokens or 0, MOST_TOKENS)
    given, output = min(said.input_tokens, MOST_TOKENS), min(said.output_tokens, MOST_TOKENS)
    return Usage(input=given, output=output, cache_read=read, cache_write=write)
