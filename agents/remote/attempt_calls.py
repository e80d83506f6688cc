"""The manager's end: makes the calls of an attempt on a node, as those of attempts made here, and pays for them.

The node may ask only for what its order allows: its model, its effort, answers of the usual length, so many turns. It
sends no header of its own, and sees neither a key nor a price.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import anyio

from agents.base.transcripts import Transcript
from agents.conversation.guards import AttemptBudget
from agents.conversation.settings import AgentSettings, WorkerSettings
from agents.models.answer import Answer
from agents.models.calls import Caller
from agents.remote.messages import (
    BODY,
    Ask,
    AskLimits,
    AskRelay,
    Limits,
    Outcome,
    RelayEnd,
    RelayHead,
    dump,
    dump_answer,
    dump_failure,
    load_asked,
)
from agents.workers.registry import WorkerContext
from agents.workers.relay import AgentGoneError, AgentRelay, RelayRequest
from fleet.ports.agents import DrainingError
from fleet.ports.calls import AttemptCalls, CallRefusedError, Reply
from fleet.ports.nodes import AttemptMeter, AttemptOrder, OpenCalls

MOST_LIMITS = 16  # how often the limits of its model may be asked for
_TOOL_TYPES = frozenset({"", "custom", "bash_20250124", "text_editor_20250728"})
"""What the service itself would run costs money, and is no tool of a worker."""


@dataclass(slots=True)
class ConversationCalls:
    """Satisfies `AttemptCalls` for a conversation of ours."""

    model: str
    effort: str | None
    settings: WorkerSettings
    common: AgentSettings
    caller: Caller
    budget: AttemptBudget
    transcript: Transcript
    drained: bool = False
    _asked: int = 0
    _warmed: int = 0
    _limits: int = 0
    _kept: int = 0

    async def answer(self, request: bytes, reply: Reply) -> None:
        match load_asked(request):
            case AskLimits(limits_of=model):
                await reply.send(dump(await self._limits_of(model)))
            case Ask() as asked:
                self._check(asked)
                await reply.send(dump(await self._unless_dropped(asked, reply)))
            case AskRelay():
                raise CallRefusedError("it asks for a relay; its order is a conversation")

    def keep(self, transcript: bytes) -> None:
        self._kept += len(transcript)
        if self._kept <= LONGEST_TRANSCRIPT:
            self.transcript.append(transcript)

    def close(self) -> None:
        """A call under way is cancelled with its task."""

    async def _limits_of(self, model: str) -> Limits:
        self._limits += 1
        if model not in self._models or self._limits > MOST_LIMITS:
            raise CallRefusedError(f"it asks for the limits of {model!r}, {self._limits} times")
        instead = self.caller.available(model)
        limits = await self.caller.limits(instead)
        return Limits(limits=limits, touches=self.caller.touches(instead), model=instead)

    @property
    def _models(self) -> set[str]:
        return {self.model, self.caller.available(self.model)}

    def _check(self, asked: Ask) -> None:
        """Raises `CallRefusedError` for what an honest node never asks for."""
        if asked.model not in self._models:
            raise CallRefusedError(f"it asks for the model {asked.model!r}; its order has {self.model!r}")
        if asked.effort != self.effort:
            raise CallRefusedError(f"it asks for the effort {asked.effort!r}; its order has {self.effort!r}")
        if asked.max_tokens > self.common.max_tokens:
            raise CallRefusedError(f"it asks for an answer of {asked.max_tokens} tokens")
        if any(tool.get("type", "") not in _TOOL_TYPES for tool in asked.tools):
            raise CallRefusedError("it asks for a tool that the service runs")
        self._asked += not asked.warm
        self._warmed += asked.warm
        turns = self.settings.turns
        if self._asked > turns or self._warmed > turns * self.caller.touches(asked.model):
            raise CallRefusedError(f"it asks more often than in {turns} turns")

    async def _unless_dropped(self, asked: Ask, reply: Reply) -> Outcome:
        """What became of a call; it is cut short when the node does not want it any more, and charged."""
        outcome = Outcome()
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                await reply.wait_dropped()
                tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            try:
                outcome = await self._outcome(asked)
            except DrainingError:
                self.drained, outcome = True, Outcome(draining=True)
            tasks.cancel_scope.cancel()
        return outcome

    async def _outcome(self, asked: Ask) -> Outcome:
        request = asked.request
        if asked.warm:
            kept = await self.caller.keep_warm(request, self.budget, self.transcript, turn=asked.turn)
            return Outcome(kept=kept)
        with anyio.move_on_after(min(asked.left_s, self.settings.time_s)) as clock:
            result = await self.caller.call(request, self.budget, self.transcript, turn=asked.turn, clock=clock)
            left_s = max(0.0, clock.deadline - anyio.current_time())
            model = self.caller.available(asked.model)
            if isinstance(result, Answer):
                return Outcome(answer=dump_answer(result), left_s=left_s, model=model)
            return Outcome(failure=dump_failure(result), left_s=left_s, model=model)
        return Outcome()


class NoCalls:
    """Satisfies `AttemptCalls` for a worker that calls no model through us."""

    drained = False

    async def answer(self, request: bytes, reply: Reply) -> None:
        del request, reply
        raise CallRefusedError("it asks for a call to a model; its order is a program")

    def keep(self, transcript: bytes) -> None:
        del transcript

    def close(self) -> None:
        pass


@contextmanager
def no_calls(order: AttemptOrder, meter: AttemptMeter) -> Iterator[AttemptCalls]:
    """For agents without models."""
    del order, meter
    yield NoCalls()


def calls_of(context: WorkerContext, caller: Caller) -> OpenCalls:
    """Opens the calls of attempts that are made on nodes."""

    @contextmanager
    def opened(order: AttemptOrder, meter: AttemptMeter) -> Iterator[AttemptCalls]:
        settings, brief = context.settings.workers[order.worker], order.brief
        if not settings.calls_models:
            yield NoCalls()
            return
        usual = settings.models[0] if settings.models else context.settings.worker_model
        model = brief.model or usual
        budget = AttemptBudget(meter, settings.tokens, settings.dollars)
        with context.transcripts.open(brief.subtask.id, brief.attempt) as transcript:
            if settings.kind in {"claude-code", "acp"}:
                yield RelayCalls(context.open_relay(budget, transcript, model, settings.turns), transcript)
                return
            yield ConversationCalls(model, brief.effort, settings, context.settings, caller, budget, transcript)

    return opened


# ---- relay calls -----------------------------------------------------------------------------------------------------
# The manager's end of a relay: the requests of an agent on a node, at the relay that agents here have, too.


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
