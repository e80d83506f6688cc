"""The node's end: the calls of one attempt, asked for on its line. Nothing here knows a key, a price or a service."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio

from agents.base.transcripts import Transcript
from agents.models.answer import Answer, Request
from agents.models.calls import Clock, paused
from agents.models.cost.lifetimes import LIFETIMES, Lifetimes
from agents.models.cost.prices import ModelLimits
from agents.remote.messages import (
    BODY,
    AskLimits,
    AskRelay,
    Limits,
    Outcome,
    Parsed,
    RelayEnd,
    RelayHead,
    dump,
    dump_request,
    load,
    load_answer,
)
from agents.workers.relay import AgentGoneError, RelayReply, RelayRequest
from fleet.core.state.facts import Failure
from fleet.ports.agents import DrainingError, Meter
from fleet.ports.calls import CallLine
from fleet.ports.worktrees import EffectError

_NO_END_S = 86_400.0


@dataclass(slots=True)
class LineCalls:
    """Satisfies `Calls`. The manager retries, waits, counts and pays, with a meter of its own."""

    line: CallLine
    times: Lifetimes = LIFETIMES
    _known: dict[str, Limits] = field(default_factory=dict)
    _instead: dict[str, str] = field(default_factory=dict)
    """The model that the manager called instead of one that is gone."""

    def available(self, model: str) -> str:
        return self._instead.get(model, model)

    def touches(self, model: str) -> int:
        return self._known[model].touches if model in self._known else 0

    async def limits(self, model: str) -> ModelLimits:
        if model not in self._known:
            limits = _read(Limits, await self._ask(dump(AskLimits(limits_of=model))))
            self._known[model] = self._known[limits.model] = limits
            self._instead[model] = limits.model
        return self._known[model].limits

    async def call(
        self, request: Request, meter: Meter, transcript: Transcript, *, turn: int, clock: Clock = None
    ) -> Answer | Failure:
        """The manager's clock runs for the conversation meanwhile: it stands still while a call waits its turn."""
        del meter, transcript
        outcome = await self._outcome(request, turn=turn, clock=clock, warm=False)
        if clock is not None and outcome.left_s is None:
            clock.cancel()
            await anyio.lowlevel.checkpoint()
        if clock is not None and outcome.left_s is not None:
            clock.deadline = anyio.current_time() + outcome.left_s
        self._instead[request.model] = outcome.model or request.model
        try:
            if outcome.answer is not None:
                return load_answer(outcome.answer)
            return Failure.model_validate(outcome.failure)
        except (ValueError, TypeError, KeyError) as error:
            raise _unreadable() from error

    async def keep_warm(self, request: Request, meter: Meter, transcript: Transcript, *, turn: int) -> bool:
        del meter, transcript
        return (await self._outcome(request, turn=turn, clock=None, warm=True)).kept

    async def _outcome(self, request: Request, *, turn: int, clock: Clock, warm: bool) -> Outcome:
        left_s = min(clock.deadline - anyio.current_time(), _NO_END_S) if clock is not None else _NO_END_S
        asked = dump_request(request, turn=turn, left_s=max(0.0, left_s), warm=warm)
        with paused(clock):
            outcome = _read(Outcome, await self._ask(asked))
        if outcome.draining:
            raise DrainingError
        return outcome

    async def _ask(self, asked: bytes) -> Sequence[bytes]:
        async with self.line.call(asked) as parts:
            return [part async for part in parts]


def _read(kind: type[Parsed], parts: Sequence[bytes]) -> Parsed:
    try:
        return load(kind, b"".join(parts))
    except ValueError as error:
        raise _unreadable() from error


def _unreadable() -> EffectError:
    summary = "the manager's answer to a call can't be read"
    return EffectError(Failure(kind="infrastructure", summary=summary))


# ---- line relay ------------------------------------------------------------------------------------------------------
# The node's end of a relay: what an agent in the box asks goes to the relay of the manager, and its answer back.


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
