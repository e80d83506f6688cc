"""A meter for calls that belong to no run."""

from fleet.core.facts import Failure, ServiceCondition
from fleet.core.usage import Cost
from fleet.ports import ModelUse, ServiceNews


class Open:
    """A meter without limits, of a run that was answered before."""

    def may_call(self) -> bool:
        return True

    async def reserve(self, model: str, cost: Cost) -> Failure | None:
        """There is no limit."""

    def release(self, *, lost: bool = False) -> None:
        del lost

    async def used(self, use: ModelUse) -> None:
        """Nobody counts here."""

    def waits_for(self, condition: ServiceCondition) -> bool:
        return bool(condition)

    def words(self) -> int:
        return 0

    def may_wait(self) -> bool:
        return True

    async def noticed(self, news: ServiceNews) -> None:
        """Nobody reads here."""
