"""What a call costs, from a dated table that settings can override. A model without a price costs None, never 0."""

import re
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from fleet.core.usage import Usage

_TABLE = Path(__file__).with_name("prices.toml")
_DATED = re.compile(r"-\d{8}$")  # a snapshot costs what its model costs
_MILLION = 1_000_000


class Price(BaseModel):
    """Dollars per million tokens of one model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    cache_write: float | None = Field(default=None, ge=0)
    cache_read: float | None = Field(default=None, ge=0)
    """Left out: what any other input costs."""
    long_prompt_tokens: int | None = Field(default=None, gt=0)
    """A prompt above this many tokens costs `long_prompt_factor` times as much, answer included."""
    long_prompt_factor: float = Field(default=1.0, ge=1)


class ModelLimits(BaseModel):
    """What a model takes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    context_tokens: int = Field(gt=0)
    """Prompt and answer together."""
    cache_minimum_tokens: int = Field(ge=0)
    """A shorter prefix is not cached."""


class PriceTable(BaseModel):
    """The built-in prices and limits, and the day they were read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    as_of: str
    models: dict[str, Price]
    limits: dict[str, ModelLimits]


@lru_cache(maxsize=1)
def built_in() -> PriceTable:
    return PriceTable.model_validate(tomllib.loads(_TABLE.read_text(encoding="utf-8")))


def dollars(model: str, usage: Usage, overrides: Mapping[str, Price]) -> float | None:
    """What `usage` costs on `model`, or None where nobody knows."""
    price = _price(model, overrides)
    if price is None:
        return None
    prompt = usage.input + usage.cache_read + usage.cache_write
    long = price.long_prompt_tokens is not None and prompt > price.long_prompt_tokens
    writing = price.input if price.cache_write is None else price.cache_write
    reading = price.input if price.cache_read is None else price.cache_read
    prompt_price = usage.input * price.input + usage.cache_write * writing + usage.cache_read * reading
    tokens = prompt_price + usage.output * price.output
    return tokens * (price.long_prompt_factor if long else 1.0) / _MILLION


def limits_of(model: str) -> ModelLimits:
    known = built_in().limits
    return known.get(model) or known.get(_DATED.sub("", model)) or known["other"]


def price_band(model: str, overrides: Mapping[str, Price]) -> int | None:
    """Tokens of a prompt beyond which each costs more."""
    price = _price(model, overrides)
    return None if price is None or price.long_prompt_factor == 1 else price.long_prompt_tokens


def _price(model: str, overrides: Mapping[str, Price]) -> Price | None:
    known = {**built_in().models, **overrides}
    return known.get(model) or known.get(_DATED.sub("", model))
