"""How long the cache keeps a prompt, and what is worth paying to have it kept for longer. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agents.models.cost.prices import Price, price_of

SHORT_S, HOUR_S = 300.0, 3600.0
_HOUR_FACTOR = 2.0
_ROUNDING = 1e-9
_FEW = 3  # conversations before it counts how many went on


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """The times of one service. An entry lives from the start of the request that wrote or read it."""

    short_s: float = SHORT_S
    hour_s: float = HOUR_S
    margin_s: float = 30.0
    """How long before the end of its life an entry is read again."""

    @property
    def touch_s(self) -> float:
        """How long after the start of a request its prompt has to be read again."""
        return self.short_s - self.margin_s


LIFETIMES = Lifetimes()
UNKNOWN_GAPS = (600.0, 600.0)
"""What a planner's calls are expected to be apart before any were seen: minutes."""


@dataclass(frozen=True, slots=True)
class CacheRates:
    """What a token costs: new, written to the cache for five minutes, for an hour, or read from it."""

    new: float
    written: float
    written_for_an_hour: float
    read: float


def cache_rates(model: str, prices: Mapping[str, Price]) -> CacheRates | None:
    """None if a price is unknown, or caching costs as much as not caching."""
    price = price_of(model, prices)
    if price is None or price.cache_write is None or price.cache_read is None or not price.cache_read:
        return None
    hour = price.cache_write_1h if price.cache_write_1h is not None else _HOUR_FACTOR * price.input
    return CacheRates(price.input, price.cache_write, hour, price.cache_read)


def touches_that_pay(rates: CacheRates | None) -> int:
    """How often a prompt may be read, only to keep it, before writing it again would have cost less."""
    return 0 if rates is None else int((rates.written - rates.read) / rates.read + _ROUNDING)


def ending_pays(continued: int, begun: int, rates: CacheRates | None) -> bool:
    """Whether first messages should be written to the cache to their end: enough conversations go on after them."""
    if rates is None or begun < _FEW:
        return True
    return continued * (rates.new - rates.read) > begun * (rates.written - rates.new)


def hour_pays(gaps: Sequence[float], rates: CacheRates | None, times: Lifetimes = LIFETIMES) -> bool:
    """Whether a prompt that is used again after these gaps costs less if it is written for an hour."""
    if rates is None:
        return False
    return _cost(gaps, rates.written_for_an_hour, rates.read, times.hour_s) < _cost(
        gaps, rates.written, rates.read, times.short_s
    )


def _cost(gaps: Sequence[float], written: float, read: float, lifetime_s: float) -> float:
    """What one token of the prompt costs over all of its uses."""
    return written + sum(read if gap <= lifetime_s else written for gap in gaps)
