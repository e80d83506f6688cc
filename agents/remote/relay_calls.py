"""The manager's end of a relay: the requests of an agent on a node, at the relay that agents here have, too."""

from collections.abc import Mapping
from dataclasses import dataclass

from agents.base.transcripts import Transcript
from agents.remote.messages import BODY, AskRelay, RelayEnd, RelayHead, dump, dump_failure, load_asked
from agents.workers.relay import AgentGoneError, AgentRelay, RelayRequest
from fleet.ports.calls import CallRefusedError, Reply

LONGEST_TRANSCRIPT = 64 * 1024 * 1024


@dataclass(slots=True)
class LineReply:
    """Satisfies `RelayReply` with the answer to a call of a node."""

    reply: Reply
    complete: bool = False

    @property
    def is_gone(self) -> bool:
        return self.reply.is_dropped

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        await self.reply.send(dump(RelayHead(status=status, headers=dict(headers))))

    async def write(self, chunk: bytes) -> None:
        if self.is_gone:
            raise AgentGoneError
        await self.reply.send(BODY + chunk)

    async def finish(self) -> None:
        self.complete = True

    def abort(self) -> None:
        self.complete = False


@dataclass(slots=True)
class RelayCalls:
    """Satisfies `AttemptCalls` for an agent that speaks HTTP."""

    relay: AgentRelay
    transcript: Transcript
    _kept: int = 0

    @property
    def drained(self) -> bool:
        return self.relay.drained

    async def answer(self, request: bytes, reply: Reply) -> None:
        asked = load_asked(request)
        if not isinstance(asked, AskRelay):
            raise CallRefusedError("it asks for a call of a conversation; its order is an agent")
        way_back = LineReply(reply)
        body = asked.body.encode("utf-8", "replace")
        try:
            await self.relay.handle(RelayRequest(asked.method, asked.target, asked.headers, body), way_back)
        except AgentGoneError:
            return
        relay = self.relay
        end = RelayEnd(
            complete=way_back.complete,
            refused=dump_failure(relay.refused) if relay.refused is not None else None,
            failure=dump_failure(relay.failure) if relay.failure is not None else None,
            drained=relay.drained,
        )
        await reply.send(dump(end))

    def keep(self, transcript: bytes) -> None:
        self._kept += len(transcript)
        if self._kept <= LONGEST_TRANSCRIPT:
            self.transcript.append(transcript)

    def close(self) -> None:
        self.relay.close()
