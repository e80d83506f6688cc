"""The probes, one after another: each model with its efforts, then what the cheapest one can do."""

from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import anyio

from agents.models.answer import CallFault
from agents.models.cost.prices import Price
from agents.models.wire.access import Access
from agents.models.wire.client import Client
from agents.probes.asking import Asking, NotTriedError
from agents.probes.outcome import LEFT_OUT, SETTINGS_BELOW, Came, Missing, Outcome, faulty, with_or_without
from agents.probes.spending import MOST_DOLLARS, Spending
from agents.probes.turns import USUAL, Turns, one_word
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
