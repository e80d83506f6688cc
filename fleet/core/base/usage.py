"""The usage of calls to models: tokens by kind, and dollars if the price is known."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field


class Usage(BaseModel):
    """Tokens of one or more model calls."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    input: int = Field(default=0, ge=0)
    """Input tokens that were neither read from the cache nor written to it."""
    output: int = Field(default=0, ge=0)
    """Output tokens."""
    cache_read: int = Field(default=0, ge=0)
    """Input tokens read from the cache."""
    cache_write: int = Field(default=0, ge=0)
    """Input tokens written to the cache."""
    cache_write_1h: int = Field(default=0, ge=0)
    """Part of `cache_write` that is cached for an hour. The remainder is cached for five minutes."""

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            cache_write_1h=self.cache_write_1h + other.cache_write_1h,
        )

    @property
    def total(self) -> int:
        return self.prompt + self.output

    @property
    def prompt(self) -> int:
        """All tokens of prompts."""
        return self.input + self.cache_read + self.cache_write


@dataclass(frozen=True)
class Spend:
    """Usage with its price.

    `unpriced` counts calls with an unknown price, which make the total unknown. Every model call creates two new
    values, so the tokens are plain numbers.
    """

    calls: int = 0
    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    priced_dollars: float = 0.0
    unpriced: int = 0

    @property
    def usage(self) -> Usage:
        return Usage(
            input=self.input,
            output=self.output,
            cache_read=self.cache_read,
            cache_write=self.cache_write,
            cache_write_1h=self.cache_write_1h,
        )

    @property
    def dollars(self) -> float | None:
        """The cost, or None if a part of it is unknown."""
        return None if self.unpriced else self.priced_dollars

    def plus(self, usage: Usage, dollars: float | None) -> "Spend":
        """With one more call."""
        return Spend(
            self.calls + 1,
            self.input + usage.input,
            self.output + usage.output,
            self.cache_read + usage.cache_read,
            self.cache_write + usage.cache_write,
            self.cache_write_1h + usage.cache_write_1h,
            self.priced_dollars + (dollars or 0.0),
            self.unpriced + (dollars is None),
        )

    def __add__(self, other: "Spend") -> "Spend":
        return Spend(
            self.calls + other.calls,
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.cache_write_1h + other.cache_write_1h,
            self.priced_dollars + other.priced_dollars,
            self.unpriced + other.unpriced,
        )


class Cost(BaseModel):
    """Upper bound for the cost of model calls."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    calls: int = 0
    """Number of calls."""
    tokens: int = 0
    """Number of tokens."""
    dollars: float | None = 0.0
    """Cost in dollars. Null if a price is unknown."""

    def of(self, unit: str) -> float:
        """The amount that counts against a limit in this unit."""
        return {"dollars": self.dollars or 0.0, "tokens": float(self.tokens)}.get(unit, 0.0)

    def __add__(self, other: "Cost") -> "Cost":
        is_priced = self.dollars is not None and other.dollars is not None
        return Cost(
            calls=self.calls + other.calls,
            tokens=self.tokens + other.tokens,
            dollars=(self.dollars or 0.0) + (other.dollars or 0.0) if is_priced else None,
        )


# ---- capabilities ----------------------------------------------------------------------------------------------------
# Optional features of a model service beyond the basic Messages API. fleet does not use the missing ones.


Capability = Literal[
    "thinking",
    "thinking_history",
    "effort",
    "strict_tools",
    "built_in_tools",
    "cache",
    "cache_hour",
    "keep_alive",
    "diagnostics",
    "streaming",
    "models",
    "count_tokens",
    "batches",
]
CAPABILITIES: tuple[Capability, ...] = get_args(Capability)

USES: Mapping[Capability, str] = {
    "thinking": "summaries of thinking (`thinking`)",
    "thinking_history": "thinking of earlier responses in requests",
    "effort": "reasoning effort (`output_config.effort`)",
    "strict_tools": "enforced tool schemas (`strict`)",
    "built_in_tools": "built-in tool types (`bash_…`, `text_editor_…`)",
    "cache": "prompt caching (`cache_control`)",
    "cache_hour": "prompt caching for an hour (`ttl`)",
    "keep_alive": "requests that only refresh the prompt cache (`max_tokens: 0`)",
    "diagnostics": "reasons for cache misses (`diagnostics`)",
    "streaming": "streaming responses (`stream`)",
    "models": "model limits (`GET /v1/models/MODEL`)",
    "count_tokens": "token counting (`POST /v1/messages/count_tokens`)",
    "batches": "batches at half the price (`POST /v1/messages/batches`)",
}
"""Description and trigger of each capability."""
