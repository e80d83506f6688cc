"""Prices and limits of models, from a dated table that settings can override. An unknown price is None, not 0."""

import math
import re
import tomllib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from fleet.core.base.usage import Usage
from fleet.ports import settings

_FILE = Path(__file__).with_name("prices.toml")
_DATED = re.compile(r"-\d{8}$")  # a snapshot has the price of its model
_MILLION = 1_000_000
_HOUR_FACTOR = 2.0  # of the input price, for one hour in the cache


class Price(settings.PriceSection):
    """Dollars per million tokens of a model, including values without a configuration key."""

    cache_write_1h: float | None = Field(default=None, ge=0)
    """For an hour instead of five minutes. None means twice the input price."""
    long_prompt_tokens: int | None = Field(default=None, gt=0)
    """A call with a longer prompt costs `long_prompt_factor` times as much, including its answer."""
    long_prompt_factor: float = Field(default=1.0, ge=1)


class ModelLimits(BaseModel):
    """The limits of a model."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    context_tokens: int = Field(gt=0)
    """The sum of prompt and answer."""
    output_tokens: int = Field(gt=0)
    """The maximum length of an answer, including thinking."""
    cache_minimum_tokens: int = Field(ge=0)
    """The minimum length of a cached prefix."""


class _Table(BaseModel):
    """The built-in prices and limits."""

    models: dict[str, Price]
    limits: dict[str, ModelLimits]


@cache
def _built_in() -> _Table:
    return _Table.model_validate(tomllib.loads(_FILE.read_text(encoding="utf-8")))


def prices_of(models: settings.Models) -> dict[str, Price]:
    """Return the configured prices, by model."""
    return {name: Price(**dict(price)) for name, price in models.prices.items()}


def dollars(model: str, usage: Usage, overrides: Mapping[str, Price]) -> float | None:
    """Return the cost of `usage` on `model`; None if its price is unknown."""
    price = price_of(model, overrides)
    if price is None:
        return None
    long = price.long_prompt_tokens is not None and usage.prompt > price.long_prompt_tokens
    writing = price.input if price.cache_write is None else price.cache_write
    writing_1h = _HOUR_FACTOR * price.input if price.cache_write_1h is None else price.cache_write_1h
    reading = price.input if price.cache_read is None else price.cache_read
    written = (usage.cache_write - usage.cache_write_1h) * writing + usage.cache_write_1h * writing_1h
    prompt_price = usage.input * price.input + written + usage.cache_read * reading
    tokens = prompt_price + usage.output * price.output
    return tokens * (price.long_prompt_factor if long else 1.0) / _MILLION


def reported_limits(model: str, context_tokens: object, output_tokens: object) -> ModelLimits | None:
    """Return the limits reported by a service, or None if they are invalid. Missing ones are taken from the table."""
    known = limits_of(model)
    numbers = [number for number in (context_tokens, output_tokens) if number is not None]
    if not numbers or not all(isinstance(number, int) and number > 0 for number in numbers):
        return None
    reported = {"context_tokens": context_tokens, "output_tokens": output_tokens}
    return known.model_copy(update={name: number for name, number in reported.items() if number is not None})


def limits_of(model: str) -> ModelLimits:
    """Return the limits of a model from the table."""
    limits = _built_in().limits
    return limits.get(model) or limits.get(_DATED.sub("", model)) or limits["other"]


def price_band(model: str, overrides: Mapping[str, Price]) -> int | None:
    """Return the prompt length, in tokens, above which every token costs more; None if there is no such length."""
    price = price_of(model, overrides)
    return None if price is None or price.long_prompt_factor == 1 else price.long_prompt_tokens


def price_of(model: str, overrides: Mapping[str, Price]) -> Price | None:
    prices = {**_built_in().models, **overrides}
    return prices.get(model) or prices.get(_DATED.sub("", model))


# ---- lengths ---------------------------------------------------------------------------------------------------------
# The usual length of answers: the budget reserves it for the next answer, instead of the maximum.


FLOOR = 8_000  # minimum reservation, in tokens
ENOUGH = 20  # answers before measured lengths are used
REMEMBERED = 500  # answers per model
PERCENTILE = 0.99
MARGIN = 1.25


@dataclass(slots=True)
class AnswerLengths:
    """The lengths of the latest answers of each model, in tokens, including thinking."""

    _seen: dict[str, deque[int]] = field(default_factory=dict)

    def saw(self, model: str, tokens: int) -> None:
        self._seen.setdefault(model, deque(maxlen=REMEMBERED)).append(tokens)

    def usual(self, model: str, most: int) -> int:
        """Return a length that answers of at most `most` tokens rarely exceed."""
        return min(most, usual_length(self._seen.get(model, ())))


def usual_length(seen: "deque[int] | tuple[int, ...]") -> int:
    """Return a high percentile of the measured lengths plus a margin, at least the floor."""
    if len(seen) < ENOUGH:
        return FLOOR
    ordered = sorted(seen)
    return max(FLOOR, math.ceil(MARGIN * ordered[min(len(ordered) - 1, int(PERCENTILE * len(ordered)))]))


# ---- lifetimes -------------------------------------------------------------------------------------------------------
# The lifetime of cached prompts, and when extending it saves money. Pure.


SHORT_S, HOUR_S = 300.0, 3600.0
_LIFETIMES_HOUR_FACTOR = 2.0
_ROUNDING = 1e-9
_FEW = 3  # conversations before the share of continued ones is used


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """The cache lifetimes of a service, measured from the start of the request that wrote or read an entry."""

    short_s: float = SHORT_S
    hour_s: float = HOUR_S
    margin_s: float = 30.0
    """How long before its expiry an entry is read again."""

    @property
    def touch_s(self) -> float:
        """Return the time after the start of a request at which its prompt has to be read again."""
        return self.short_s - self.margin_s


LIFETIMES = Lifetimes()
UNKNOWN_GAPS = (600.0, 600.0)
"""The assumed gaps between planner calls before any were measured, in seconds."""


@dataclass(frozen=True, slots=True)
class CacheRates:
    """The price of a token: uncached, written to the cache for five minutes or an hour, or read from it."""

    new: float
    written: float
    written_for_an_hour: float
    read: float


def cache_rates(model: str, prices: Mapping[str, Price]) -> CacheRates | None:
    """Return the rates; None if a price is unknown or caching does not save money."""
    price = price_of(model, prices)
    if price is None or price.cache_write is None or price.cache_read is None or not price.cache_read:
        return None
    hour = price.cache_write_1h if price.cache_write_1h is not None else _LIFETIMES_HOUR_FACTOR * price.input
    return CacheRates(price.input, price.cache_write, hour, price.cache_read)


def touches_that_pay(rates: CacheRates | None) -> int:
    """Return how often reading a prompt to keep it in the cache is cheaper than writing it again."""
    return 0 if rates is None else int((rates.written - rates.read) / rates.read + _ROUNDING)


def ending_pays(continued: int, begun: int, rates: CacheRates | None) -> bool:
    """Whether caching full first messages saves money, because enough conversations continue after them."""
    if rates is None or begun < _FEW:
        return True
    return continued * (rates.new - rates.read) > begun * (rates.written - rates.new)


def hour_pays(gaps: Sequence[float], rates: CacheRates | None, times: Lifetimes = LIFETIMES) -> bool:
    """Whether a prompt that is reused after these gaps is cheaper if it is cached for an hour."""
    if rates is None:
        return False
    return _cost(gaps, rates.written_for_an_hour, rates.read, times.hour_s) < _cost(
        gaps, rates.written, rates.read, times.short_s
    )


def _cost(gaps: Sequence[float], written: float, read: float, lifetime_s: float) -> float:
    """Return the cost of one token of the prompt over all uses."""
    return written + sum(read if gap <= lifetime_s else written for gap in gaps)
