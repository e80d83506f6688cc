"""The tool loop: ask, do what the answer asks for, say how it went, until the ending tool ends it or a guard trips.

Knows no model service and no particular tool. Nothing of an answer that is cut off, refused or not understood is done.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import anyio

from agents.compaction import Room, shorten
from agents.models.answer import CHARACTERS_PER_TOKEN, Answer, Block, Message, Request, ToolCall, characters, size
from agents.models.caching import Cached, explained, left_by
from agents.models.calls import Caller
from agents.text import capped, well_formed
from agents.tools.tool import BadInput, Ended, Said, Tool
from agents.transcripts import Transcript
from fleet.core.facts import Failure, FailureKind
from fleet.core.nearest import did_you_mean
from fleet.ports import Broken, DeskError, Meter

End = TypeVar("End")
Outcome = Said | Ended[End] | Ended[Failure] | BadInput
"""What comes of one tool call."""

_COMPLETE = frozenset({"tool_use", "end_turn", "stop_sequence"})
_EVIDENCE = 4_000  # characters of a conversation that go into a failure


@dataclass(frozen=True, slots=True)
class Guards:
    """What ends a conversation that does not end itself."""

    turns: int
    seconds: float
    nudges: int = 1
    """Turns in a row without a tool that are answered with a reminder."""
    bad_inputs: int = 2
    """Turns in a row with a tool input that is none, that are answered with an error."""
    repeats: int = 5
    """The same action this often in a row is a loop, and so are the same few in turn."""
    cycle: int = 4
    """How many actions in turn may make up a loop."""
    cuts: int = 2
    """Answers in a row that ran into their length."""
    pauses: int = 3
    """Answers in a row that the service broke off to be continued."""
    closing: int = 3
    """Turns before the last at which the model is told to come to an end."""
    riddles: int = 1
    """Answers in a row with a stop reason that nobody knows."""
    squeezes: int = 2
    """How often in a row the conversation is made shorter because it was refused as too long."""


@dataclass(frozen=True, slots=True)
class Setting(Generic[End]):
    """What a conversation is held with."""

    model: str
    max_tokens: int
    system: str
    tools: tuple[Tool[End], ...]
    ending: str
    """The tool that ends it."""
    guards: Guards
    room: Room | None = None
    """How long it may become; None: until the model refuses."""
    shared: int = 0
    """Blocks at the front of the first message that other conversations begin with, too."""
    reminder: str = ""
    """A text that must stay the last one from us, whatever else we say later."""

    def tool(self, name: str) -> Tool[End] | None:
        return next((tool for tool in self.tools if tool.name == name), None)


@dataclass(slots=True)
class Conversation(Generic[End]):
    """One conversation. The history only grows, until it has to become shorter; what the model said stays as it was."""

    setting: Setting[End]
    caller: Caller
    meter: Meter
    transcript: Transcript
    _tools: tuple[Block, ...] = ()
    _messages: list[Message] = field(default_factory=list)
    _in_a_row: dict[str, int] = field(default_factory=dict)
    _actions: list[str] = field(default_factory=list)
    """The last ones, as many as the longest loop takes."""
    _fixed: int = 0
    """Characters of what every call begins with."""
    _grown: int = 0
    """And of the messages, counted as they come."""
    _model: str = ""
    _clock: anyio.CancelScope | None = None
    _tokens_per_character: float = 1 / CHARACTERS_PER_TOKEN
    _cached: Cached | None = None
    _changed: str = ""
    """Why the cache can't know the next prompt: what we changed in it ourselves."""

    async def hold(self, first: Sequence[str]) -> End | Failure:
        """Talk until there is a result. `first` are the texts of the first message."""
        with anyio.move_on_after(self.setting.guards.seconds) as self._clock:
            return await self._hold(first)
        return self._failure("budget", f"no {self.setting.ending} after {self.setting.guards.seconds:g} s")

    async def _hold(self, first: Sequence[str]) -> End | Failure:
        self._tools = tuple(tool.declaration for tool in self.setting.tools)
        self._fixed = size(self.setting.system) + size(self._tools)
        self.transcript.write("system", model=self.setting.model, text=self.setting.system)
        self._say([_text(text) for text in first])
        for turn in range(1, self.setting.guards.turns + 1):
            self._make_room()
            self._model = self._model or self.caller.stand_in(self.setting.model)
            request = self._request()
            answer = await self.caller.call(request, self.meter, self.transcript, turn=turn, clock=self._clock)
            if turn == 1:  # the first call may have found out that the model is gone
                self._model = self.caller.stand_in(self._model)
            if isinstance(answer, Failure):
                if answer.kind == "too_complex" and self._squeezed(
                    answer.summary
                ):  # the prompt was refused as too long
                    continue
                self.transcript.write("failure", **answer.model_dump())
                return answer
            self._weigh(request, answer, turn)
            self._heard(answer, turn)
            end = await self._answer_to(answer, left=self.setting.guards.turns - turn)
            if isinstance(end, Ended):
                self.transcript.write("end", value=str(end.value))
                return end.value
            if end is not None:
                self.transcript.write("failure", **end.model_dump())
                return end
        return self._failure("budget", f"no {self.setting.ending} after {self.setting.guards.turns} turns")

    def _request(self) -> Request:
        setting = self.setting
        messages, length = tuple(self._messages), self._fixed + self._grown
        return Request(
            self._model, setting.max_tokens, setting.system, self._tools, messages, setting.shared, length=length
        )

    async def _answer_to(self, answer: Answer, *, left: int) -> Ended[End] | Ended[Failure] | Failure | None:
        """What comes of one answer: the end, a failure, or None after a word from us."""
        match answer.stop_reason:
            case reason if reason in _COMPLETE:
                self._forget("cuts", "pauses", "riddles", "squeezes")
                if answer.calls:
                    return await self._act(answer, left=left)
                return self._nudged(answer)
            case "max_tokens":
                return self._cut(answer)
            case "pause_turn":
                return self._paused(answer)
            case "refusal":
                return Failure(kind="refusal", summary="the model refused", evidence=capped(answer.text, _EVIDENCE))
            case "model_context_window_exceeded" if self._squeezed("the answer ran into the end of the context"):
                return None
            case "model_context_window_exceeded":
                return self._failure("too_complex", "the conversation no longer fits the model's context")
            case unknown:
                return self._once_more("riddles", "protocol", f"the model stopped for an unknown reason: {unknown!r}")

    # ---- doing what an answer asks for ----

    async def _act(self, answer: Answer, *, left: int) -> Ended[End] | Ended[Failure] | Failure | None:
        self._keep(answer)
        self._forget("nudges")
        if failure := self._looping(answer):
            return failure
        results: list[Block] = []
        malformed = False
        for group in self._groups(answer.calls):
            for call, outcome in zip(group, await self._run_all(group), strict=True):
                if isinstance(outcome, Ended):
                    return outcome
                malformed |= isinstance(outcome, BadInput)
                results.append(_result(call, outcome))
        if not malformed:
            self._forget("bad_inputs")
        elif failure := self._once_more("bad_inputs", "protocol", "tool inputs that fit no tool, again and again"):
            return failure
        if left == self.setting.guards.closing:
            results.append(_text(f"{left} turns are left. Come to an end and call {self.setting.ending}."))
        self._say(results)
        return None

    def _groups(self, calls: Sequence[ToolCall]) -> Iterator[list[ToolCall]]:
        """Neighbours that only read go together; everything else goes alone, in order."""
        group: list[ToolCall] = []
        for call in calls:
            tool = self.setting.tool(call.name)
            if tool is not None and call.broken is None and tool.reads_only(call.input):
                group.append(call)
                continue
            if group:
                yield group
                group = []
            yield [call]
        if group:
            yield group

    async def _run_all(self, calls: Sequence[ToolCall]) -> list[Outcome[End]]:
        outcomes: dict[int, Outcome[End]] = {}

        async def run(index: int, call: ToolCall) -> None:
            outcomes[index] = await self._run(call)

        if len(calls) == 1:
            return [await self._run(calls[0])]
        async with anyio.create_task_group() as readers:
            for index, call in enumerate(calls):
                readers.start_soon(run, index, call)
        return [outcomes[index] for index in range(len(calls))]

    async def _run(self, call: ToolCall) -> Outcome[End]:
        tool = self.setting.tool(call.name)
        if tool is None:
            names = [tool.name for tool in self.setting.tools]
            return BadInput(
                f"There is no tool {call.name!r}{did_you_mean(call.name, names)}; there are {', '.join(names)}."
            )
        if call.broken is not None:
            return BadInput(f"Nothing was done: {call.broken}.")
        try:
            return await tool.run(call.input)
        except BadInput as bad:
            return bad
        except Broken as broken:
            return Ended(broken.failure)
        except DeskError as error:
            return Said(str(error), is_error=True)

    # ---- guards ----

    def _looping(self, answer: Answer) -> Failure | None:
        repeats, cycle = self.setting.guards.repeats, self.setting.guards.cycle
        action = "\n".join(call.action for call in answer.calls)
        self._actions = [*self._actions, action][-repeats * cycle :]
        for length in range(1, cycle + 1):
            turns = self._actions[-length * repeats :]
            if len(turns) == length * repeats and turns == turns[:length] * repeats:
                what = "the same action" if length == 1 else f"the same {length} actions in turn"
                return self._failure("protocol", f"{what}, {repeats} times in a row", "\n".join(turns[:length]))
        return None

    def _nudged(self, answer: Answer) -> Failure | None:
        if failure := self._once_more(
            "nudges", "protocol", f"turns without a tool; {self.setting.ending} ends the work"
        ):
            return failure
        self._keep(answer)
        self._say([_text(f"You called no tool. Go on with one, or call {self.setting.ending} to end.")])
        return None

    def _cut(self, answer: Answer) -> Failure | None:
        """Out of tokens: nothing of it is done, and the model is asked for less at a time."""
        if failure := self._once_more("cuts", "too_complex", "answers too long for max_tokens, again and again"):
            return failure
        self._undone(
            answer, "Your answer was cut off at its greatest length. Nothing of it was done. Take smaller steps."
        )
        return None

    def _paused(self, answer: Answer) -> Failure | None:
        """Broken off to be continued: it goes back as it is, with a word of ours unless a tool of theirs still runs."""
        if failure := self._once_more("pauses", "protocol", "the service paused the turn again and again"):
            return failure
        if any(block["type"] == "server_tool_use" for block in answer.blocks) and not answer.calls:
            self._keep(answer)
        else:
            self._undone(answer, "The turn was paused. Go on.")
        return None

    def _undone(self, answer: Answer, word: str) -> None:
        """Every call wants a result, also one that was not run."""
        self._keep(answer)
        results = [_result(call, Said("Not run: the answer did not end.", is_error=True)) for call in answer.calls]
        self._say([*results, _text(word)])

    def _once_more(self, guard: str, kind: FailureKind, why: str) -> Failure | None:
        """Count one of these in a row; a failure when it is one too many."""
        self._in_a_row[guard] = self._in_a_row.get(guard, 0) + 1
        if self._in_a_row[guard] <= getattr(self.setting.guards, guard):
            return None
        return self._failure(kind, why)

    def _forget(self, *guards: str) -> None:
        for guard in guards:
            self._in_a_row.pop(guard, None)

    def _failure(self, kind: FailureKind, summary: str, evidence: str = "") -> Failure:
        return Failure(kind=kind, summary=summary, evidence=capped(evidence or self._tail(), _EVIDENCE))

    def _tail(self) -> str:
        """The last that was said on both sides."""
        return "\n".join(_shown(block) for message in self._messages[-2:] for block in message["content"])

    # ---- length ----

    def _make_room(self) -> None:
        """Before the prompt is too long, or costs a multiple."""
        room = self.setting.room
        if room is None or len(self._messages) == 1:
            return
        length = self._length()
        if length > room.most:
            self._shorten(room.target / length, f"about {length} tokens of at most {room.most}")

    def _squeezed(self, why: str) -> bool:
        """Whether a conversation that was refused as too long is shorter now: the same is never asked again."""
        return self._once_more("squeezes", "too_complex", why) is None and self._shorten(0.5, why)

    def _shorten(self, share: float, why: str) -> bool:
        before = self._grown
        made = shorten(self._messages, int(before * share), before_last=bool(self.setting.reminder))
        if made is None:
            return False
        self._messages = made.messages
        self._changed = f"the conversation was made shorter: {made.how}"
        self._grown = size(self._messages)
        lengths = {"characters_before": before, "characters_after": self._grown}
        self.transcript.write("compacted", why=why, how=made.how, **lengths)
        return True

    def _length(self) -> int:
        """About how many tokens the next prompt has, by what the last one had."""
        return round((self._fixed + self._grown) * self._tokens_per_character)

    def _weigh(self, request: Request, answer: Answer, turn: int) -> None:
        """What a character of this conversation takes, and whether the cache did what it could."""
        usage, now = answer.usage, anyio.current_time()
        prompt = usage.input + usage.cache_read + usage.cache_write
        if prompt:
            self._tokens_per_character = prompt / max(1, characters(request))
        if missed := explained(usage, self._model, self._cached, now, changed=self._changed):
            self.transcript.write("cache_miss", turn=turn, why=missed, usage=usage.model_dump())
        self._cached, self._changed = left_by(answer, self._model, now), ""

    # ---- history ----

    def _heard(self, answer: Answer, turn: int) -> None:
        self.transcript.write(
            "answer",
            turn=turn,
            model=answer.model,
            stop_reason=answer.stop_reason,
            request_id=answer.request_id,
            usage=answer.usage.model_dump(),
            content=answer.blocks,
        )

    def _keep(self, answer: Answer) -> None:
        """What the model said, unchanged; only empty texts, which the service refuses to take back, are left out."""
        blocks = [block for block in answer.blocks if block["type"] != "text" or block["text"].strip()]
        if blocks:
            self._grown += size(blocks)
            self._messages.append({"role": "assistant", "content": blocks})

    def _say(self, blocks: Sequence[Block]) -> None:
        spoken = [*blocks]
        if self._messages and self.setting.reminder and any(block["type"] == "text" for block in spoken):
            spoken.append(_text(self.setting.reminder))
        self._grown += size(spoken)
        if self._messages and self._messages[-1]["role"] == "user":
            before = self._messages.pop()["content"]  # after an empty answer: two turns of one side make one
            self._messages.append({"role": "user", "content": [*before, *spoken]})
        else:
            self._messages.append({"role": "user", "content": spoken})
        self.transcript.write("user", content=spoken)


def _text(text: str) -> Block:
    return {"type": "text", "text": well_formed(text)}


def _result(call: ToolCall, outcome: Said | BadInput) -> Block:
    said = Said(str(outcome), is_error=True) if isinstance(outcome, BadInput) else outcome
    block: Block = {"type": "tool_result", "tool_use_id": call.id, "content": well_formed(said.text) or "(nothing)"}
    return {**block, "is_error": True} if said.is_error else block


def _shown(block: Mapping[str, Any]) -> str:
    match block.get("type"):
        case "text":
            return str(block["text"])
        case "tool_use":
            return f"[{block['name']}] {block['input']}"
        case "tool_result":
            return str(block["content"])
        case _:
            return ""
