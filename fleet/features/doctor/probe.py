"""The probes of a model service: each model with its efforts, then the features of the cheapest model."""

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from secrets import token_hex
from typing import Literal

import anyio

from agents.conversation.history import compact
from agents.models.access import Access
from agents.models.answer import Answer, Block, CallFault, Message, Quotas, Request, estimated_tokens, size
from agents.models.client import Client
from agents.models.exchange import refused_capability
from agents.models.prices import Price, dollars, limits_of, price_of
from agents.planner import SubmitRevision
from agents.tools.edit import Bash, EditTool
from agents.tools.report import ReportTool
from fleet.core.base.usage import USES, Capability, Usage
from fleet.core.plans.plan import Effort

# ---- outcome ---------------------------------------------------------------------------------------------------------
# The outcome of a probe.


Verdict = Literal["works", "fails", "not tried"]
SETTINGS_BELOW = "use the settings below"
_FIXES = {
    "refused": "check the key, its permissions and models.api_key_env",
    "gone": "use a model of this service in models.worker, planner.model, rungs or models.fallbacks",
    "limit": "the service limits calls: try again later",
    "outage": "check the network and models.base_url",
}


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of a call."""

    verdict: Verdict
    text: str
    fix: str = ""
    """The action that fixes it."""


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    """The result of one probe as text."""

    about: str
    """A model and its effort, or the tested feature."""
    tried: str
    came: ProbeResult
    dollars: float = 0.0
    """The cost by the price table."""


def faulty(fault: CallFault) -> ProbeResult:
    """The result for a fault, with the fix."""
    return ProbeResult(
        "fails", fault.message, _FIXES.get(fault.kind, "the service rejects this request: see its message")
    )


def with_or_without(text: str, lacking: Collection[Capability]) -> ProbeResult:
    """The result for an answer, which may require that features are omitted."""
    if not lacking:
        return ProbeResult("works", text)
    named = ", ".join(f"{name}: {USES[name]}" for name in sorted(lacking))
    return ProbeResult("fails", f"{text}, but only without {named}", SETTINGS_BELOW)


LEFT_OUT = ProbeResult("not tried", "the service lacks a required feature")


@dataclass(slots=True)
class Missing:
    """The features that the service lacks, by model."""

    configured: dict[str, frozenset[Capability]]
    """The features that each model lacks by configuration."""
    found: dict[str, set[Capability]] = field(default_factory=dict)
    had: dict[str, set[Capability]] = field(default_factory=dict)
    """The features that each model supports."""

    def of(self, model: str) -> frozenset[Capability]:
        """The features to omit in a request to a model."""
        return self.configured.get(model, frozenset()) | frozenset(self.found.get(model, ()))

    def lacks(self, model: str, *capabilities: Capability) -> None:
        self.found.setdefault(model, set()).update(capabilities)

    def has(self, model: str, *capabilities: Capability) -> None:
        self.had.setdefault(model, set()).update(capabilities)

    def settings(self) -> str:
        """The keys of `[models]` to set, including the configured values. Empty if no change is required."""
        if not any(self.found.values()):
            return ""
        found = set[Capability]().union(*self.found.values())
        nowhere = {name for name in found if not any(name in had for had in self.had.values())}
        usual = frozenset.intersection(*self.configured.values()) | nowhere
        single = {model: sorted(self.of(model) - usual) for model in self.configured}
        lines = [f"without = {_list(sorted(usual))}"] if usual else []
        if tables := [f'"{model}" = {_list(names)}' for model, names in single.items() if names]:
            lines.append(f"model_without = {{ {', '.join(tables)} }}")
        return "; ".join(lines)


def _list(names: Collection[str]) -> str:
    quoted = (f'"{name}"' for name in names)
    return f"[{', '.join(quoted)}]"


# ---- spending --------------------------------------------------------------------------------------------------------
# The budget of the probes. A call that could exceed it is not made.


MOST_DOLLARS = 0.01
_FIRST_ERROR = 400
_UNSEEN = 60
"""The tokens that the service adds to a prompt."""
_UNSEEN_OF_TOOLS = 800
"""The tokens that the service adds to a prompt with tools."""


@dataclass(slots=True)
class ProbeSpending:
    """The amount spent so far, by the price table."""

    prices: Mapping[str, Price]
    most: float = MOST_DOLLARS
    spent: float = 0.0
    calls: int = 0

    def problem(self, request: Request) -> str:
        """The reason why a call must not be made, or an empty string."""
        cost = self.bound(request)
        if cost is None:
            return f"the price of {request.model} is unknown, so its cost can't be limited"
        if self.spent + cost <= self.most:
            return ""
        return f"it could cost ${cost:.4f}, and ${self.most - self.spent:.4f} of ${self.most:.2f} are left"

    def fix(self, model: str) -> str:
        """The fix that makes such a call possible."""
        return f'set [models.prices."{model}"]' if price_of(model, self.prices) is None else ""

    def bound(self, request: Request) -> float | None:
        """The maximum cost of a call: a prompt written fully to the cache, and the longest answer."""
        unseen = _UNSEEN_OF_TOOLS if request.tools else _UNSEEN
        prompt = estimated_tokens(request) + unseen
        hour = prompt if request.kept_s > 300 else 0  # noqa: PLR2004 - five minutes
        usage = Usage(cache_write=prompt, cache_write_1h=hour, output=request.max_tokens)
        return dollars(request.model, usage, self.prices)

    def pay(self, request: Request, result: Answer | CallFault) -> float:
        """Count a call. A rejected call is free. A call without usage counts as the maximum."""
        self.calls += 1
        if isinstance(result, CallFault) and (result.status or 0) >= _FIRST_ERROR:
            return 0.0
        usage = result.usage if result.usage is not None and result.usage.total else None
        cost = dollars(request.model, usage, self.prices) if usage is not None else self.bound(request)
        self.spent += cost or 0.0
        return cost or 0.0

    def rank(self, model: str) -> float:
        """A sort key by price. Models without a price come last."""
        price = price_of(model, self.prices)
        return float("inf") if price is None else price.input + price.output


# ---- asking ----------------------------------------------------------------------------------------------------------
# One call of a probe, within the remaining budget, repeated without features that the service rejects.


_REFUSED = frozenset({"configuration", "conversation"})


class NotTriedError(Exception):
    """A call that is not made."""

    def __init__(self, why: str, fix: str = "") -> None:
        super().__init__(why)
        self.fix = fix


@dataclass(slots=True)
class Asking:
    """Makes the calls, and finds the part of a request that a service rejects."""

    client: Client
    spending: ProbeSpending
    missing: Missing
    until: float = math.inf
    """The end of the time for calls, by anyio's clock."""
    fault: CallFault | None = None
    """A fault that affects every call, so that no more calls are made."""
    cost: float = 0.0
    """The cost of the calls since the last `take_cost`."""
    _begun: Callable[[Quotas], None] = field(default=lambda _: None)

    def take_cost(self) -> float:
        cost, self.cost = self.cost, 0.0
        return cost

    def require_time(self) -> None:
        """Raises `NotTriedError` if the time is up."""
        if anyio.current_time() >= self.until:
            raise NotTriedError("out of time")

    async def ask(self, request: Request, *asks_for: Capability) -> Answer | CallFault:
        """The answer, without the features of `asks_for` that the service rejects. Raises `NotTriedError`."""
        model = request.model
        wanted = tuple(each for each in asks_for if each not in self.missing.of(model))
        result = await self._once(request, self.missing.of(model))
        if isinstance(result, CallFault) and result.kind in _REFUSED and wanted:
            result = await self._without_some(request, result, wanted)
        if isinstance(result, Answer):
            self.missing.has(model, *(each for each in wanted if each not in self.missing.of(model)))
        return result

    async def _without_some(
        self, request: Request, refusal: CallFault, wanted: tuple[Capability, ...]
    ) -> Answer | CallFault:
        """Omit the feature named in the rejection, or otherwise any feature whose omission lets the request pass."""
        usual, found = self.missing.of(request.model), frozenset[Capability]()
        result: Answer | CallFault = refusal
        while isinstance(result, CallFault):
            named = refused_capability(result, usual | found)
            if named not in wanted:
                break
            found |= {named}
            result = await self._once(request, usual | found)
        if isinstance(result, CallFault) and result.kind in _REFUSED:
            for left_out in _sets(wanted):
                result = await self._once(request, usual | left_out)
                if isinstance(result, Answer):
                    found = left_out
                    break
            else:
                return refusal
        if isinstance(result, Answer) and found:
            found, result = await self._fewest(request, found, result)
            self.missing.lacks(request.model, *found)
        return result

    async def _fewest(
        self, request: Request, found: frozenset[Capability], answer: Answer
    ) -> tuple[frozenset[Capability], Answer]:
        """Restore the features whose omission is not required."""
        for each in sorted(found) if len(found) > 1 else ():
            fewer = found - {each}
            result = await self._once(request, self.missing.of(request.model) | fewer)
            if isinstance(result, Answer):
                found, answer = fewer, result
        return found, answer

    async def _once(self, request: Request, without: frozenset[Capability]) -> Answer | CallFault:
        self.require_time()
        if self.fault is not None:
            raise NotTriedError(f"an earlier call failed: {self.fault.message}")
        if problem := self.spending.problem(request):
            raise NotTriedError(problem, self.spending.fix(request.model))
        result = await self.client.ask_without(request, self._begun, without)
        self.cost += self.spending.pay(request, result)
        if isinstance(result, CallFault) and result.kind in {"refused", "outage", "limit"}:
            self.fault = result
        return result


def _sets(wanted: tuple[Capability, ...]) -> Iterator[frozenset[Capability]]:
    """Each feature alone, then all of them."""
    yield from (frozenset({each}) for each in wanted)
    if len(wanted) > 1:
        yield frozenset(wanted)


# ---- walk ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Subject:
    """A configured model, and its users."""

    model: str
    effort: Effort | None
    users: str

    @property
    def name(self) -> str:
        return self.model if self.effort is None else f"{self.model} {self.effort}"


@dataclass(slots=True)
class Probes:
    """Tests a service."""

    client: Client
    access: Access
    subjects: Sequence[Subject]
    prices: Mapping[str, Price]
    most: float = MOST_DOLLARS
    limit_s: float = 300.0
    """The time limit for all calls."""
    spending: ProbeSpending = field(init=False)
    missing: Missing = field(init=False)
    _asking: Asking = field(init=False)
    _answered: list[str] = field(default_factory=list)
    """The models that answered, the cheapest first."""

    def __post_init__(self) -> None:
        self.spending = ProbeSpending(self.prices, self.most)
        self.missing = Missing({each.model: self.access.lacking(each.model) for each in self.subjects})
        self._asking = Asking(self.client, self.spending, self.missing)

    async def run(self) -> AsyncIterator[ProbeOutcome]:
        """Yield each outcome as soon as it is known."""
        self._asking.until = anyio.current_time() + self.limit_s
        for subject in sorted(self.subjects, key=lambda each: (self.spending.rank(each.model), each.name)):
            came = await _try(self._one_word(subject))
            yield ProbeOutcome(subject.name, f"a one-word answer, for {subject.users}", came, self._asking.take_cost())
        for model in self._answered:
            yield ProbeOutcome("models", f"GET /v1/models/{model}", await _try(self._limits(model)))
        if self._answered:
            cheapest = self._answered[0]
            yield ProbeOutcome("count_tokens", "length of a prompt", await _try(self._count(cheapest)))
            yield ProbeOutcome("batches", "GET /v1/messages/batches", await _try(self._batches(cheapest)))
            async for outcome in ProbeTurns(cheapest, self._asking).run():
                yield outcome

    async def _one_word(self, subject: Subject) -> ProbeResult:
        model, before = subject.model, self.missing.of(subject.model)
        efforts: tuple[Capability, ...] = ("effort",) if subject.effort is not None else ()
        result = await self._asking.ask(replace(one_word(model), effort=subject.effort), *USUAL, *efforts)
        if isinstance(result, CallFault):
            return faulty(result)
        if model not in self._answered:
            self._answered.append(model)
        tokens = f"{result.usage.prompt} input tokens, {result.usage.output} output tokens"
        return with_or_without(f"answered in {result.seconds:.1f} s, {tokens}", self.missing.of(model) - before)

    async def _limits(self, model: str) -> ProbeResult:
        if "models" in self.missing.of(model):
            return LEFT_OUT
        self._asking.require_time()
        reported = await self.client.reported_limits(model)
        if isinstance(reported, CallFault):
            self.missing.lacks(model, "models")
            return ProbeResult("fails", f"{reported.message}: limits come from the built-in table", SETTINGS_BELOW)
        self.missing.has(model, "models")
        longest = (
            f"context window of {reported.context_tokens:,} tokens, up to {reported.output_tokens:,} output tokens"
        )
        return ProbeResult("works", longest)

    async def _count(self, model: str) -> ProbeResult:
        if "count_tokens" in self.missing.of(model):
            return LEFT_OUT
        self._asking.require_time()
        result = await self.client.count(one_word(model), self.missing.of(model))
        if isinstance(result, CallFault):
            self.missing.lacks(model, "count_tokens")
            return ProbeResult("fails", f"{result.message}: only Claude Code can count tokens", SETTINGS_BELOW)
        return ProbeResult("works", f"{result} tokens")

    async def _batches(self, model: str) -> ProbeResult:
        """List the batches, which is free."""
        if "batches" in self.missing.of(model):
            return LEFT_OUT
        self._asking.require_time()
        listed = await self.client.batches_since(0.0)
        if isinstance(listed, CallFault):
            for each in self._answered:
                self.missing.lacks(each, "batches")
            return ProbeResult(
                "fails", f"{listed.message}: batched reviews at half the price are not available", SETTINGS_BELOW
            )
        return ProbeResult("works", "batched requests cost half")


async def _try(probe: Awaitable[ProbeResult]) -> ProbeResult:
    """The result of a probe, or the reason why it was skipped."""
    try:
        return await probe
    except NotTriedError as why:
        return ProbeResult("not tried", str(why), why.fix)


# ---- turns -----------------------------------------------------------------------------------------------------------
# The features of a model: a worker's first turns and a planner's call, like those of a real run.


SHORT = 32  # tokens of an answer with one word
LONG, LESS_LONG = 1024, 256  # tokens of an answer with thinking and a tool call; less for expensive models
_SHARE = 0.2  # of the budget, for one such answer
HOUR_S = 3600.0
USUAL: tuple[Capability, ...] = ("thinking", "diagnostics", "cache", "streaming")
"""The features of every request."""
_TOOLS: tuple[Block, ...] = (Bash.declaration, EditTool.declaration, ReportTool.declaration)
_CHARACTERS = 5  # the maximum per token of English text
_SENTENCE = "This sentence is here so that the prompt is long enough for the cache. "
_LINES = 500  # of a tool result, enough to be compacted


def one_word(model: str) -> Request:
    """The shortest request."""
    return Request(model, SHORT, "Answer in one word.", (), (_says("Say the word ok."),))


@dataclass(slots=True)
class ProbeTurns:
    """The probes of a model that depend on each other."""

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

    async def run(self) -> AsyncIterator[ProbeOutcome]:
        """Yield each outcome as soon as it is known. Probes that require a missing answer are skipped."""
        probes: tuple[tuple[str, str, Callable[[], Awaitable[ProbeResult | None]]], ...] = (
            ("tools", "strict and built-in tools, with a tool call", self._call_tools),
            ("thinking back", "next turn, with the thinking of the first", self._continue),
            ("cache", "same prefix in both turns", self._compare),
            ("compaction", "compacted conversation", self._compact),
            ("keep_alive", "first prompt again, to keep its cache alive", self._keep),
            ("cache_hour", "prompt cached for an hour", self._keep_for_an_hour),
            ("planner", "strict schema of the planner's revisions", self._plan),
        )
        for about, tried, probe in probes:
            try:
                came = await probe()
            except NotTriedError as why:
                came = ProbeResult("not tried", str(why), why.fix)
            if came is not None:
                yield ProbeOutcome(about, tried, came, self.asking.take_cost())

    async def _call_tools(self) -> ProbeResult:
        result = await self.asking.ask(self._request(), *USUAL, "built_in_tools", "strict_tools")
        if isinstance(result, CallFault):
            return faulty(result)
        self._first = result
        text = f"it called {result.calls[0].name}" if result.calls else "it answered without calling one"
        return with_or_without(text, self._found("built_in_tools", "strict_tools"))

    async def _continue(self) -> ProbeResult | None:
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

    async def _compare(self) -> ProbeResult | None:
        """Compare the tokens written to the cache by the first turn and read by the second."""
        if self._first is None or self._second is None:
            return None
        if "cache" in self._lacking:
            return LEFT_OUT
        wrote, read = self._first.usage.cache_write, self._second.usage.cache_read
        text = f"the first call wrote {wrote:,} tokens to the cache, and the second read {read:,}"
        if wrote and read:
            return ProbeResult("works", text)
        self.asking.missing.lacks(self.model, "cache")
        return ProbeResult("fails", f"{text}: prompts cost their full price", SETTINGS_BELOW)

    async def _compact(self) -> ProbeResult | None:
        shorter = compact(self._messages, size(self._messages) // 2, before_last=False)
        if self._second is None or shorter is None:
            return None
        result = await self.asking.ask(self._request(shorter.messages))
        return faulty(result) if isinstance(result, CallFault) else ProbeResult("works", "accepted")

    async def _keep(self) -> ProbeResult:
        if self._lacking & {"cache", "keep_alive"}:
            return LEFT_OUT
        result = await self.asking.ask(replace(self._request(self._messages[:1]), max_tokens=0))
        if isinstance(result, Answer) and result.usage.cache_read:
            self.asking.missing.has(self.model, "keep_alive")
            return ProbeResult("works", f"read {result.usage.cache_read:,} tokens from the cache")
        self.asking.missing.lacks(self.model, "keep_alive")
        text = result.message if isinstance(result, CallFault) else "no tokens were read from the cache"
        return ProbeResult("fails", text, SETTINGS_BELOW)

    async def _keep_for_an_hour(self) -> ProbeResult:
        if self._lacking & {"cache", "cache_hour"}:
            return LEFT_OUT
        request = replace(one_word(self.model), system=_padding(self.model), kept_s=HOUR_S, ends_in_cache=False)
        result = await self.asking.ask(request, "cache_hour")
        if isinstance(result, CallFault):
            return faulty(result)
        if lacking := self._found("cache_hour"):
            return with_or_without("accepted", lacking)
        if result.usage.cache_write_1h:
            return ProbeResult("works", f"wrote {result.usage.cache_write_1h:,} tokens that stay cached for an hour")
        self.asking.missing.lacks(self.model, "cache_hour")
        return ProbeResult("fails", "no tokens were cached for an hour", SETTINGS_BELOW)

    async def _plan(self) -> ProbeResult:
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
        """The features of these that the service lacks."""
        return self._lacking & frozenset(capabilities) - self.asking.missing.configured[self.model]


def _padding(model: str) -> str:
    """A new system prompt, long enough for the cache."""
    length = limits_of(model).cache_minimum_tokens * _CHARACTERS
    return f"Probe {token_hex(8)}. Answer in one word. " + _SENTENCE * (length // len(_SENTENCE) + 1)


def _says(text: str) -> Message:
    return {"role": "user", "content": [{"type": "text", "text": text}]}
