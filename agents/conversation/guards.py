"""One attempt's own limits of tokens and dollars, in front of the run's: asked before each call, counted after it."""

from dataclasses import dataclass

from fleet.core.facts import Failure, ServiceCondition
from fleet.core.usage import Cost, Spend
from fleet.ports import Meter, ModelUse, ServiceNews


@dataclass(slots=True)
class Allowance:
    """A meter that also says no when this attempt has had its share. A call under way is never cut short."""

    meter: Meter
    tokens: int | None = None
    dollars: float | None = None
    spent: Spend = Spend()

    @property
    def exhausted(self) -> str | None:
        """The limit that this attempt has reached, in words."""
        if self.tokens is not None and self.spent.usage.total >= self.tokens:
            return f"the attempt used {self.spent.usage.total} tokens; its worker may use {self.tokens}"
        if self.dollars is not None and self.spent.priced_dollars >= self.dollars:
            return f"the attempt cost ${self.spent.priced_dollars:.4f}; its worker may cost ${self.dollars:g}"
        return None

    def may_call(self) -> bool:
        return self.exhausted is None and self.meter.may_call()

    async def reserve(self, model: str, cost: Cost) -> Failure | None:
        if self.exhausted is not None:
            return Failure(kind="budget", summary=self.exhausted)
        return await self.meter.reserve(model, cost)

    def release(self, *, lost: bool = False) -> None:
        self.meter.release(lost=lost)

    async def used(self, use: ModelUse) -> None:
        self.spent = self.spent.plus(use.usage, use.dollars)
        await self.meter.used(use)

    def waits_for(self, condition: ServiceCondition) -> bool:
        return self.meter.waits_for(condition)

    def words(self) -> int:
        return self.meter.words()

    def may_wait(self) -> bool:
        return self.meter.may_wait()

    async def noticed(self, news: ServiceNews) -> None:
        await self.meter.noticed(news)
