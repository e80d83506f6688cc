"""One call of a probe: within the money that is left, and again without what the service refuses."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import anyio

from agents.models.answer import Answer, CallFault, Quotas, Request
from agents.models.wire.client import Client
from agents.models.wire.faults import refused_capability
from agents.probes.outcome import Missing
from agents.probes.spending import Spending
from fleet.core.base.capabilities import Capability

_REFUSED = frozenset({"configuration", "conversation"})


class NotTriedError(Exception):
    """A call that is not made."""

    def __init__(self, why: str, fix: str = "") -> None:
        super().__init__(why)
        self.fix = fix


@dataclass(slots=True)
class Asking:
    """Makes the calls, and finds out which part of a request a service refuses."""

    client: Client
    spending: Spending
    missing: Missing
    until: float = math.inf
    """When no further call is made, by anyio's clock."""
    fault: CallFault | None = None
    """A fault that concerns every call: no further one is made."""
    cost: float = 0.0
    """Of the calls since it was last taken."""
    _begun: Callable[[Quotas], None] = field(default=lambda _: None)

    def take_cost(self) -> float:
        cost, self.cost = self.cost, 0.0
        return cost

    def require_time(self) -> None:
        """Raises `NotTriedError` if the time is up."""
        if anyio.current_time() >= self.until:
            raise NotTriedError("the time is up")

    async def ask(self, request: Request, *asks_for: Capability) -> Answer | CallFault:
        """The answer, without what was found to be refused of `asks_for`. Raises `NotTriedError`."""
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
        """Leave out what the refusal names; where it names nothing, whatever lets the request pass."""
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
        """What need not be left out after all is asked for again."""
        for each in sorted(found) if len(found) > 1 else ():
            fewer = found - {each}
            result = await self._once(request, self.missing.of(request.model) | fewer)
            if isinstance(result, Answer):
                found, answer = fewer, result
        return found, answer

    async def _once(self, request: Request, without: frozenset[Capability]) -> Answer | CallFault:
        self.require_time()
        if self.fault is not None:
            raise NotTriedError(f"the service did not answer before: {self.fault.message}")
        if problem := self.spending.problem(request):
            raise NotTriedError(problem, self.spending.fix(request.model))
        result = await self.client.ask_without(request, self._begun, without)
        self.cost += self.spending.pay(request, result)
        if isinstance(result, CallFault) and result.kind in {"refused", "outage", "limit"}:
            self.fault = result
        return result


def _sets(wanted: tuple[Capability, ...]) -> Iterator[frozenset[Capability]]:
    """Each alone, then all of them."""
    yield from (frozenset({each}) for each in wanted)
    if len(wanted) > 1:
        yield frozenset(wanted)
