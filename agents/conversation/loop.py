"""The tool loop: call the model, run its tool calls, return the results, until the ending tool or a guard ends it.

Independent of the model service and of specific tools. A truncated, refused or malformed answer has no effect.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import anyio

from agents.conversation.guards import Conduct, Guards, Mistake
from agents.conversation.history import History, PromptLimits, text_block
from agents.models.answer import Answer, Block, Request, ToolCall, size
from agents.models.calls import Calls
from agents.models.text import capped, operator_text, well_formed
from agents.models.transcripts import Transcript
from agents.tools.tool import ReportDone, Tool, ToolInputError, ToolResult
from fleet.core.base.ids import did_you_mean
from fleet.core.facts.facts import Failure, FailureKind
from fleet.ports.agents import DrainingError, Meter, WorkspaceError
from fleet.ports.operator import SILENT, Operator
from fleet.ports.worktrees import EffectError

End = TypeVar("End")
_COMPLETE = frozenset({"tool_use", "end_turn", "stop_sequence"})
_MISTAKES_OF_AN_ANSWER: tuple[Mistake, ...] = ("cut_off", "paused", "unknown_stop", "too_long")
_TOUCH_S = 20.0  # how long a cache-warming call may delay the next turn
_EVIDENCE = 4_000  # characters of a conversation in a failure
_STOPPED = ToolResult("Stopped by the operator before it finished. An instruction follows.", is_error=True)
_NOT_RUN = ToolResult("Not run: the operator interrupted. An instruction follows.", is_error=True)
_NOT_ENDED = ToolResult("Not accepted: the operator sent an instruction in the meantime. It follows.", is_error=True)


@dataclass(frozen=True, slots=True)
class ConversationSpec(Generic[End]):
    """The settings of a conversation, without its first message."""

    model: str
    max_tokens: int
    system: str
    tools: tuple[Tool[End], ...]
    ending: str
    """The tool that ends the conversation."""
    guards: Guards
    limits: PromptLimits | None = None
    """The length limits; None to continue until the model rejects the prompt."""
    shared: int = 0
    """The number of leading blocks of the first message that other conversations share."""
    effort: str | None = None
    """The effort level; None for the model's default."""
    recurs: bool = False
    """Whether similar conversations follow each other, minutes apart."""
    keeps_all: bool = False
    """Whether a conversation that becomes too long fails, instead of being compacted."""
    reminder: str = ""
    """A text that must remain the last one from fleet, even if more is added."""


@dataclass(slots=True)
class Conversation(Generic[End]):
    """One conversation, from its first message to its end."""

    spec: ConversationSpec[End]
    caller: Calls
    meter: Meter
    transcript: Transcript
    operator: Operator = SILENT
    history: History = field(init=False)
    _declarations: tuple[Block, ...] = field(init=False)
    _conduct: Conduct = field(init=False)
    _model: str = field(init=False)
    _clock: anyio.CancelScope | None = None
    _previous: str | None = None
    """The id of the last answer."""
    _asked_at: float = 0.0
    """When the last answered request was sent."""
    _turn: int = 0

    def __post_init__(self) -> None:
        spec = self.spec
        self._declarations = tuple(tool.declaration for tool in spec.tools)
        self.history = History(self.transcript, spec.reminder, size(spec.system) + size(self._declarations))
        self._conduct = Conduct(spec.guards.repeats)
        self._model = self.caller.available(spec.model)

    async def hold(self, first: Sequence[str], *, known: tuple[ToolCall, str, str] | None = None) -> End | Failure:
        """Run the conversation until it has a result. `first` are the texts of the first message.

        `known` is a call that counts as already made, with its result and the text after it.
        """
        guards = self.spec.guards
        self.transcript.write("system", model=self.spec.model, text=self.spec.system)
        self.history.add_ours([text_block(text) for text in first])
        if known is not None:
            call, text, then = known
            self.history.add_call(call)
            self.history.add_ours([_result_block(call, ToolResult(text)), text_block(then)])
        result: ReportDone[End] | Failure | None = None
        with anyio.move_on_after(guards.seconds) as self._clock:
            for turn in range(1, guards.turns + 1):
                if (result := await self._take_turn(turn)) is not None:
                    break
        if self._clock.cancelled_caught:
            return self._failure("budget", f"no {self.spec.ending} after {guards.seconds:g} s")
        match result:
            case None:
                return self._failure("budget", f"no {self.spec.ending} after {guards.turns} turns")
            case Failure():
                self.transcript.write("failure", **result.model_dump())
                return result
            case ReportDone(value=value):
                self.transcript.write("end", value=str(value))
                return value

    async def _take_turn(self, turn: int) -> ReportDone[End] | Failure | None:
        """Make one call and run its tools. Return None if the conversation continues."""
        await self._read_instructions()
        self.history.make_room(self.spec.limits)
        self._turn = turn
        request = self._request()
        answer = await self.caller.call(request, self.meter, self.transcript, turn=turn, clock=self._clock)
        if turn == 1:  # the first call may have discovered that the model is gone
            self._model = self.caller.available(self._model)
        if isinstance(answer, Failure):
            return None if self._squeezed(answer) else answer
        self._previous, self._asked_at = answer.id or self._previous, anyio.current_time() - answer.seconds
        self._conduct.forgive("refused")
        self.history.calibrate(request, answer)
        self.transcript.write("answer", turn=turn, **answer.record())
        if answer.stop_reason in _COMPLETE and answer.calls:
            return await self._act(answer, turns_left=self.spec.guards.turns - turn)
        return self._respond(answer)

    async def _read_instructions(self) -> None:
        """Add the operator's instructions to the next request, after the results of the tools."""
        if self.history.is_ours and (instructions := await self.operator.read()):
            self.history.add_ours([text_block(operator_text(each)) for each in instructions], event="operator")

    def _request(self) -> Request:
        spec, history = self.spec, self.history
        messages, length = tuple(history.messages), history.length
        return Request(
            self._model,
            spec.max_tokens,
            spec.system,
            self._declarations,
            messages,
            spec.shared,
            effort=spec.effort,
            recurs=spec.recurs,
            previous=self._previous,
            length=length,
        )

    def _respond(self, answer: Answer) -> Failure | None:
        """Handle an answer that is incomplete or has no calls."""
        match answer.stop_reason:
            case reason if reason in _COMPLETE:
                self._conduct.forgive(*_MISTAKES_OF_AN_ANSWER)
                return self._nudge(answer)
            case "max_tokens":
                return self._cut_off(answer)
            case "pause_turn":
                return self._resume(answer)
            case "compaction":  # never requested
                return self._mistake(
                    "paused",
                    "protocol",
                    "the service compacted the conversation several times in a row without a request",
                )
            case "refusal":
                return Failure(kind="refusal", summary="the model refused", evidence=capped(answer.text, _EVIDENCE))
            case "model_context_window_exceeded" if self._compacted("the answer reached the end of the context"):
                return None
            case "model_context_window_exceeded":
                return self._failure("too_complex", "the conversation no longer fits the model's context")
            case unknown:
                summary = f"the model stopped for an unknown reason: {unknown!r}"
                return self._mistake("unknown_stop", "protocol", summary)

    # ---- running tools

    async def _act(self, answer: Answer, *, turns_left: int) -> ReportDone[End] | Failure | None:
        self.history.add_answer(answer)
        self._conduct.forgive("no_tool", *_MISTAKES_OF_AN_ANSWER)
        if loop := self._conduct.loop(answer.calls):
            what = "the same action" if len(loop) == 1 else f"the same cycle of {len(loop)} actions"
            return self._failure("protocol", f"{what}, {self.spec.guards.repeats} times in a row", "\n".join(loop))
        results: list[Block] = []
        malformed = False
        for call in answer.calls:
            outcome = await self._run(call)
            if isinstance(outcome, ReportDone) and turns_left and self.operator.has_news:
                outcome = _NOT_ENDED
            if not isinstance(outcome, ToolResult):
                return outcome
            malformed |= outcome.bad_input
            results.append(_result_block(call, outcome))
        if not malformed:
            self._conduct.forgive("bad_input")
        elif failure := self._mistake(
            "bad_input", "protocol", "the model called tools with invalid input several times in a row"
        ):
            return failure
        if turns_left == self.spec.guards.closing:
            results.append(text_block(f"{turns_left} turns are left. Finish now and call {self.spec.ending}."))
        self.history.add_ours(results)
        return None

    async def _run(self, call: ToolCall) -> ToolResult | ReportDone[End] | Failure:
        """Run a call, unless the operator stops it before or during the call."""
        if self.operator.interrupts:
            return _NOT_RUN
        outcome: ToolResult | ReportDone[End] | Failure = _STOPPED
        async with self._kept_warm():
            try:
                outcome = await self._tool(call).run(call.input)
            except ToolInputError as error:
                outcome = ToolResult(str(error), is_error=True, bad_input=True)
            except EffectError as error:
                outcome = error.failure
            except WorkspaceError as error:
                outcome = ToolResult(str(error), is_error=True)
        return outcome

    @asynccontextmanager
    async def _kept_warm(self) -> AsyncIterator[None]:
        """Keep the prompt in the cache during the block. The operator may interrupt the block."""
        try:
            async with anyio.create_task_group() as tasks:
                if touches := self.caller.touches(self._model):
                    tasks.start_soon(self._keep_warm, touches)
                tasks.start_soon(self._stop_on_interrupt, tasks.cancel_scope)
                yield
                tasks.cancel_scope.cancel()
        except ExceptionGroup as group:  # raised by the tool or by the model call
            raise group.exceptions[0] from None

    async def _stop_on_interrupt(self, scope: anyio.CancelScope) -> None:
        await self.operator.wait_interrupt()
        scope.cancel()

    async def _keep_warm(self, touches: int) -> None:
        """Read the prompt before its cache entry expires, as often as that saves money."""
        times = self.caller.times
        for _ in range(touches):
            await anyio.sleep(self._asked_at + times.touch_s - anyio.current_time())
            started = anyio.current_time()
            with anyio.move_on_after(_TOUCH_S, shield=True):  # a canceled call is billed, too
                try:
                    kept = await self.caller.keep_warm(self._request(), self.meter, self.transcript, turn=self._turn)
                except DrainingError:
                    return
                if not kept:
                    return
            self._asked_at = started

    def _tool(self, call: ToolCall) -> Tool[End]:
        """Return the tool of a call. Raises `ToolInputError` if no tool can run it."""
        tools = {tool.name: tool for tool in self.spec.tools}
        if call.name not in tools:
            hint = did_you_mean(call.name, tools)
            raise ToolInputError(f"Unknown tool {call.name!r}{hint}. Available tools: {', '.join(tools)}.")
        if call.problem is not None:
            raise ToolInputError(f"Not run: {call.problem}.")
        return tools[call.name]

    # ---- answers without a usable tool call

    def _nudge(self, answer: Answer) -> Failure | None:
        summary = f"the model answered twice in a row without a tool call (it must end with {self.spec.ending})"
        if failure := self._mistake("no_tool", "protocol", summary):
            return failure
        notice = f"You did not call a tool. Continue with one, or call {self.spec.ending} to end."
        self.history.add_answer(answer)
        self.history.add_ours([text_block(notice)])
        return None

    def _cut_off(self, answer: Answer) -> Failure | None:
        """Handle an answer that reached `max_tokens`: request smaller steps."""
        if failure := self._mistake("cut_off", "too_complex", "several answers in a row were longer than max_tokens"):
            return failure
        notice = "Your answer was cut off at the maximum length, and none of it was run. Take smaller steps."
        self._add_without_effect(answer, notice)
        return None

    def _resume(self, answer: Answer) -> Failure | None:
        """Resume a turn that the service paused: send it back, with a text unless a tool of the service is running."""
        if failure := self._mistake("paused", "protocol", "the service paused the turn several times in a row"):
            return failure
        if any(block["type"] == "server_tool_use" for block in answer.blocks) and not answer.calls:
            self.history.add_answer(answer)
        else:
            self._add_without_effect(answer, "The turn was paused. Continue.")
        return None

    def _add_without_effect(self, answer: Answer, notice: str) -> None:
        """Add an answer and a result for each of its calls, because calls that were not run need one, too."""
        self.history.add_answer(answer)
        not_run = ToolResult("Not run: the answer was incomplete.", is_error=True)
        self.history.add_ours([*(_result_block(call, not_run) for call in answer.calls), text_block(notice)])

    def _squeezed(self, refusal: Failure) -> bool:
        """Change a conversation that the service rejected, if possible. Return whether to try again."""
        match refusal.kind:
            case "too_complex":
                return self._compacted(refusal.summary)
            case "protocol" if not self._conduct.is_too_many("refused"):
                why = refusal.summary
                return self.history.strip_thinking(why) or self._compacted(why)
            case _:
                return False

    def _compacted(self, why: str) -> bool:
        """Compact a conversation that was rejected as too long. Return whether it became shorter."""
        if self.spec.keeps_all:
            return False
        return not self._conduct.is_too_many("too_long") and self.history.compact(0.5, why)

    def _mistake(self, mistake: Mistake, kind: FailureKind, summary: str) -> Failure | None:
        """Count a mistake. Return a failure after too many in a row."""
        return self._failure(kind, summary) if self._conduct.is_too_many(mistake) else None

    def _failure(self, kind: FailureKind, summary: str, evidence: str = "") -> Failure:
        return Failure(kind=kind, summary=summary, evidence=capped(evidence or self.history.tail(), _EVIDENCE))


def _result_block(call: ToolCall, result: ToolResult) -> Block:
    block: Block = {"type": "tool_result", "tool_use_id": call.id, "content": well_formed(result.text) or "(nothing)"}
    return {**block, "is_error": True} if result.is_error else block
