"""The probes, one after another: each model with its efforts, then what the cheapest one can do."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from secrets import token_hex

import anyio

from agents.conversation.compaction import compact
from agents.models.answer import Answer, Block, CallFault, Message, Request, size
from agents.models.cost.prices import Price, limits_of
from agents.models.wire.access import Access
from agents.models.wire.client import Client
from agents.probes.asking import Asking, NotTriedError
from agents.probes.outcome import LEFT_OUT, SETTINGS_BELOW, Came, Missing, Outcome, faulty, with_or_without
from agents.probes.spending import MOST_DOLLARS, Spending
from agents.tools.bash import Bash
from agents.tools.edit import EditTool
from agents.tools.report import ReportTool
from agents.tools.submit_revision import SubmitRevision
from fleet.core.base.capabilities import Capability
from fleet.core.plans.plan import Effort


@dataclass(frozen=True, slots=True)
class Subject:
    """A model as it is configured, and who uses it."""

    model: str
    effort: Effort | None
    users: str

    @property
    def name(self) -> str:
        return self.model if self.effort is None else f"{self.model} {self.effort}"


@dataclass(slots=True)
class Probes:
    """Tries one service."""

    client: Client
    access: Access
    subjects: Sequence[Subject]
    prices: Mapping[str, Price]
    most: float = MOST_DOLLARS
    limit_s: float = 300.0
    """How long after its beginning no further call is made."""
    spending: Spending = field(init=False)
    missing: Missing = field(init=False)
    _asking: Asking = field(init=False)
    _answered: list[str] = field(default_factory=list)
    """The models that answered, the cheapest first."""

    def __post_init__(self) -> None:
        self.spending = Spending(self.prices, self.most)
        self.missing = Missing({each.model: self.access.lacking(each.model) for each in self.subjects})
        self._asking = Asking(self.client, self.spending, self.missing)

    async def run(self) -> AsyncIterator[Outcome]:
        """Each outcome as soon as it is there."""
        self._asking.until = anyio.current_time() + self.limit_s
        for subject in sorted(self.subjects, key=lambda each: (self.spending.rank(each.model), each.name)):
            came = await _tried(self._one_word(subject))
            yield Outcome(subject.name, f"a word, asked as {subject.users} would ask", came, self._asking.take_cost())
        for model in self._answered:
            yield Outcome("models", f"GET /v1/models/{model}", await _tried(self._limits(model)))
        if self._answered:
            cheapest = self._answered[0]
            yield Outcome("count_tokens", "the length of a prompt", await _tried(self._count(cheapest)))
            yield Outcome("batches", "GET /v1/messages/batches", await _tried(self._batches(cheapest)))
            async for outcome in Turns(cheapest, self._asking).run():
                yield outcome

    async def _one_word(self, subject: Subject) -> Came:
        model, before = subject.model, self.missing.of(subject.model)
        efforts: tuple[Capability, ...] = ("effort",) if subject.effort is not None else ()
        result = await self._asking.ask(replace(one_word(model), effort=subject.effort), *USUAL, *efforts)
        if isinstance(result, CallFault):
            return faulty(result)
        if model not in self._answered:
            self._answered.append(model)
        tokens = f"{result.usage.prompt} tokens of prompt, {result.usage.output} of answer"
        return with_or_without(f"answered in {result.seconds:.1f} s, {tokens}", self.missing.of(model) - before)

    async def _limits(self, model: str) -> Came:
        if "models" in self.missing.of(model):
            return LEFT_OUT
        self._asking.require_time()
        reported = await self.client.reported_limits(model)
        if isinstance(reported, CallFault):
            self.missing.lacks(model, "models")
            return Came("fails", f"{reported.message}: limits come from the built-in table", SETTINGS_BELOW)
        self.missing.has(model, "models")
        longest = f"{reported.context_tokens:,} tokens of prompt and answer, {reported.output_tokens:,} of one answer"
        return Came("works", longest)

    async def _count(self, model: str) -> Came:
        if "count_tokens" in self.missing.of(model):
            return LEFT_OUT
        self._asking.require_time()
        result = await self.client.count(one_word(model), self.missing.of(model))
        if isinstance(result, CallFault):
            self.missing.lacks(model, "count_tokens")
            return Came("fails", f"{result.message}: only Claude Code counts tokens", SETTINGS_BELOW)
        return Came("works", f"{result} tokens")

    async def _batches(self, model: str) -> Came:
        """Asks for the list of batches, which costs nothing."""
        if "batches" in self.missing.of(model):
            return LEFT_OUT
        self._asking.require_time()
        listed = await self.client.latest_batches()
        if isinstance(listed, CallFault):
            for each in self._answered:
                self.missing.lacks(each, "batches")
            return Came("fails", f"{listed.message}: no review can wait for half the price", SETTINGS_BELOW)
        return Came("works", "requests that may wait cost half")


async def _tried(probe: Awaitable[Came]) -> Came:
    """What came of a probe, or why it was not tried."""
    try:
        return await probe
    except NotTriedError as why:
        return Came("not tried", str(why), why.fix)


# ---- turns -----------------------------------------------------------------------------------------------------------
# What one model can do beyond a word: a worker's first turns and a planner's call, as the product would make them.


SHORT = 32  # tokens of an answer that says one word
LONG, LESS_LONG = 1024, 256  # tokens of an answer that thinks and calls a tool; the second of a dear model
_SHARE = 0.2  # of the money, for one such answer
HOUR_S = 3600.0
USUAL: tuple[Capability, ...] = ("thinking", "diagnostics", "cache", "streaming")
"""What every request asks for."""
_TOOLS: tuple[Block, ...] = (Bash.declaration, EditTool.declaration, ReportTool.declaration)
_CHARACTERS = 5  # of English text, at most, for each token that has to be there
_SENTENCE = "This sentence is here so that the prompt is long enough for the cache. "
_LINES = 500  # of a tool's result: enough to be shortened


def one_word(model: str) -> Request:
    """The shortest request."""
    return Request(model, SHORT, "Answer in one word.", (), (_says("Say the word ok."),))


@dataclass(slots=True)
class Turns:
    """The probes of one model that build on each other."""

    model: str
    asking: Asking
    _base: Request = field(init=False)
    _messages: list[Message] = field(init=False)
    _first: Answer | None = None
    _second: Answer | None = None

    def __post_init__(self) -> None:
        self._base = replace(one_word(self.model), max_tokens=LONG, system=_padding(self.model), tools=_TOOLS)
        if (self.asking.spending.bound(self._base) or 0.0) > _SHARE * self.asking.spending.most:
            self._base = replace(self._base, max_tokens=LESS_LONG)
        self._messages = [_says("Call the tool report with status done and summary ok.")]

    async def run(self) -> AsyncIterator[Outcome]:
        """Each outcome as soon as it is there. What needs an answer that never came is left out."""
        probes: tuple[tuple[str, str, Callable[[], Awaitable[Came | None]]], ...] = (
            ("tools", "a coder's tools, strict and built in, with the request to call one", self._call_tools),
            ("thinking back", "the next turn, with the thinking of the first", self._continue),
            ("cache", "the same beginning in both turns", self._compare),
            ("compaction", "the conversation, shortened as long ones are", self._compact),
            ("keep_alive", "the first prompt again, for nothing but the cache", self._keep),
            ("cache_hour", "a prompt written to the cache for an hour", self._keep_for_an_hour),
            ("planner", "the planner's strict schema of a revision", self._plan),
        )
        for about, tried, probe in probes:
            try:
                came = await probe()
            except NotTriedError as why:
                came = Came("not tried", str(why), why.fix)
            if came is not None:
                yield Outcome(about, tried, came, self.asking.take_cost())

    async def _call_tools(self) -> Came:
        result = await self.asking.ask(self._request(), *USUAL, "built_in_tools", "strict_tools")
        if isinstance(result, CallFault):
            return faulty(result)
        self._first = result
        text = f"it called {result.calls[0].name}" if result.calls else "it answered without calling one"
        return with_or_without(text, self._found("built_in_tools", "strict_tools"))

    async def _continue(self) -> Came | None:
        if self._first is None:
            return None
        content = [block for block in self._first.blocks if block["type"] != "text" or block["text"].strip()]
        results: list[Block] = [
            {"type": "tool_result", "tool_use_id": call.id, "content": "ok\n" * _LINES} for call in self._first.calls
        ]
        if content:
            self._messages.append({"role": "assistant", "content": content})
            self._messages.append({"role": "user", "content": results or _says("Go on.")["content"]})
        result = await self.asking.ask(replace(self._request(), previous=self._first.id), "thinking_history")
        if isinstance(result, CallFault):
            return faulty(result)
        self._second = result
        return with_or_without("accepted", self._found("thinking_history"))

    async def _compare(self) -> Came | None:
        """What the first turn wrote to the cache, and the second read."""
        if self._first is None or self._second is None:
            return None
        if "cache" in self._lacking:
            return LEFT_OUT
        wrote, read = self._first.usage.cache_write, self._second.usage.cache_read
        text = f"the first wrote {wrote:,} tokens to the cache, the second read {read:,} from it"
        if wrote and read:
            return Came("works", text)
        self.asking.missing.lacks(self.model, "cache")
        return Came("fails", f"{text}: prompts cost their full price", SETTINGS_BELOW)

    async def _compact(self) -> Came | None:
        shorter = compact(self._messages, size(self._messages) // 2, before_last=False)
        if self._second is None or shorter is None:
            return None
        result = await self.asking.ask(self._request(shorter.messages))
        return faulty(result) if isinstance(result, CallFault) else Came("works", "accepted")

    async def _keep(self) -> Came:
        if self._lacking & {"cache", "keep_alive"}:
            return LEFT_OUT
        result = await self.asking.ask(replace(self._request(self._messages[:1]), max_tokens=0))
        if isinstance(result, Answer) and result.usage.cache_read:
            self.asking.missing.has(self.model, "keep_alive")
            return Came("works", f"it read {result.usage.cache_read:,} tokens")
        self.asking.missing.lacks(self.model, "keep_alive")
        text = result.message if isinstance(result, CallFault) else "nothing was read from the cache"
        return Came("fails", text, SETTINGS_BELOW)

    async def _keep_for_an_hour(self) -> Came:
        if self._lacking & {"cache", "cache_hour"}:
            return LEFT_OUT
        request = replace(one_word(self.model), system=_padding(self.model), kept_s=HOUR_S, ends_in_cache=False)
        result = await self.asking.ask(request, "cache_hour")
        if isinstance(result, CallFault):
            return faulty(result)
        if lacking := self._found("cache_hour"):
            return with_or_without("accepted", lacking)
        if result.usage.cache_write_1h:
            return Came("works", f"it wrote {result.usage.cache_write_1h:,} tokens for an hour")
        self.asking.missing.lacks(self.model, "cache_hour")
        return Came("fails", "nothing was written for an hour", SETTINGS_BELOW)

    async def _plan(self) -> Came:
        request = replace(one_word(self.model), tools=(SubmitRevision.declaration,))
        result = await self.asking.ask(request, "strict_tools")
        if isinstance(result, CallFault):
            return faulty(result)
        return with_or_without("accepted", self._found("strict_tools"))

    def _request(self, messages: Sequence[Message] = ()) -> Request:
        return replace(self._base, messages=tuple(messages or self._messages))

    @property
    def _lacking(self) -> frozenset[Capability]:
        return self.asking.missing.of(self.model)

    def _found(self, *capabilities: Capability) -> frozenset[Capability]:
        """Which of these the service was found to lack."""
        return self._lacking & frozenset(capabilities) - self.asking.missing.configured[self.model]


def _padding(model: str) -> str:
    """A system prompt that no one sent before, long enough for the cache."""
    length = limits_of(model).cache_minimum_tokens * _CHARACTERS
    return f"Probe {token_hex(8)}. Answer in one word. " + _SENTENCE * (length // len(_SENTENCE) + 1)


def _says(text: str) -> Message:
    return {"role": "user", "content": [{"type": "text", "text": text}]}
