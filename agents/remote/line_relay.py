"""The node's end of a relay: what an agent in the box asks goes to the relay of the manager, and its answer back."""

from dataclasses import dataclass, field

import anyio

from agents.remote.messages import BODY, AskRelay, RelayEnd, RelayHead, dump, load
from agents.workers.relay import AgentGoneError, RelayReply, RelayRequest
from fleet.core.state.facts import Failure
from fleet.ports.calls import CallLine

_POLL_S = 0.2  # how often we check whether an agent is still connected
_CUT_OFF = "the manager's relay did not answer"


@dataclass(slots=True)
class LineRelay:
    """Satisfies `AgentRelay`. Whether a request is allowed, and what it costs, is known to the manager alone."""

    line: CallLine
    refused: Failure | None = None
    failure: Failure | None = None
    drained: bool = False
    _open: set[anyio.CancelScope] = field(default_factory=set)

    async def handle(self, request: RelayRequest, reply: RelayReply) -> None:
        body = request.body.decode("utf-8", "replace")
        asked = AskRelay(method=request.method, target=request.target, headers=dict(request.headers), body=body)
        async with anyio.create_task_group() as tasks:
            self._open.add(tasks.cancel_scope)
            try:
                tasks.start_soon(self._watch, reply, tasks.cancel_scope)
                await self._forward(dump(asked), reply)
            except AgentGoneError:
                reply.abort()
            finally:
                self._open.discard(tasks.cancel_scope)
            tasks.cancel_scope.cancel()

    async def _forward(self, asked: bytes, reply: RelayReply) -> None:
        complete = False
        try:
            async with self.line.call(asked) as parts:
                begun = False
                async for part in parts:
                    if not part:
                        continue
                    if part.startswith(BODY):
                        await reply.write(part.removeprefix(BODY))
                    elif not begun:
                        head, begun = load(RelayHead, part), True
                        await reply.begin(head.status, head.headers)
                    else:
                        complete = self._take(load(RelayEnd, part))
            if complete:
                await reply.finish()
        except ValueError as error:
            self.failure = Failure(kind="infrastructure", summary=_CUT_OFF, evidence=str(error)[:300])
        finally:
            if not complete:
                reply.abort()

    def _take(self, end: RelayEnd) -> bool:
        self.refused = Failure.model_validate(end.refused) if end.refused is not None else None
        self.failure = Failure.model_validate(end.failure) if end.failure is not None else None
        self.drained = end.drained
        return end.complete

    async def _watch(self, reply: RelayReply, scope: anyio.CancelScope) -> None:
        """Say that the answer is not wanted any more once the agent has hung up."""
        while not reply.is_gone:  # noqa: ASYNC110 - a socket reports no client that hangs up
            await anyio.sleep(_POLL_S)
        scope.cancel()

    def close(self) -> None:
        for scope in self._open:
            scope.cancel()
