"""What the probes may spend: a call that could exceed it is not made."""

from collections.abc import Mapping
from dataclasses import dataclass

from agents.models.answer import Answer, CallFault, Request, estimated_tokens
from agents.models.cost.prices import Price, dollars, price_of
from fleet.core.base.usage import Usage

MOST_DOLLARS = 0.01
_FIRST_ERROR = 400
_UNSEEN = 60
"""Tokens of a prompt that the service adds."""
_UNSEEN_OF_TOOLS = 800
"""The same, where tools are offered."""


@dataclass(slots=True)
class Spending:
    """What was spent so far, by the table of prices."""

    prices: Mapping[str, Price]
    most: float = MOST_DOLLARS
    spent: float = 0.0
    calls: int = 0

    def problem(self, request: Request) -> str:
        """Why a call may not be made; empty if it may."""
        cost = self.bound(request)
        if cost is None:
            return f"the price of {request.model} is unknown, so what it costs can't be limited"
        if self.spent + cost <= self.most:
            return ""
        return f"it could cost ${cost:.4f}, and ${self.most - self.spent:.4f} of ${self.most:.2f} are left"

    def fix(self, model: str) -> str:
        """What makes such a call possible."""
        return f'set [models.prices."{model}"]' if price_of(model, self.prices) is None else ""

    def bound(self, request: Request) -> float | None:
        """What a call costs at most: a prompt that is written to the cache as a whole, and the longest answer."""
        unseen = _UNSEEN_OF_TOOLS if request.tools else _UNSEEN
        prompt = estimated_tokens(request) + unseen
        hour = prompt if request.kept_s > 300 else 0  # noqa: PLR2004 - five minutes
        usage = Usage(cache_write=prompt, cache_write_1h=hour, output=request.max_tokens)
        return dollars(request.model, usage, self.prices)

    def pay(self, request: Request, result: Answer | CallFault) -> float:
        """Count a call. A refusal costs nothing; what names no usage is taken for the dearest."""
        self.calls += 1
        if isinstance(result, CallFault) and (result.status or 0) >= _FIRST_ERROR:
            return 0.0
        usage = result.usage if result.usage is not None and result.usage.total else None
        cost = dollars(request.model, usage, self.prices) if usage is not None else self.bound(request)
        self.spent += cost or 0.0
        return cost or 0.0

    def rank(self, model: str) -> float:
        """How dear a model is; one without a price comes last."""
        price = price_of(model, self.prices)
        return float("inf") if price is None else price.input + price.output
