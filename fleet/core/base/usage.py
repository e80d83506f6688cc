"""The usage of calls to models: tokens by kind, and dollars if the price is known."""

from pydantic import BaseModel, ConfigDict, Field


class Usage(BaseModel):
    """Tokens of one or more calls. `input` excludes what was read from or written to the cache."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: int = Field(default=0, ge=0)
    output: int = Field(default=0, ge=0)
    cache_read: int = Field(default=0, ge=0)
    cache_write: int = Field(default=0, ge=0)
    cache_write_1h: int = Field(default=0, ge=0)
    """Those of `cache_write` that are kept for an hour; the others are kept for five minutes."""

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


class Spend(BaseModel):
    """Usage with its price. `unpriced` counts calls whose model has no known price; then the sum is unknown, not 0."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    calls: int = 0
    usage: Usage = Usage()
    priced_dollars: float = 0.0
    unpriced: int = 0

    @property
    def dollars(self) -> float | None:
        """The cost, or None if a part of it is unknown."""
        return None if self.unpriced else self.priced_dollars

    def plus(self, usage: Usage, dollars: float | None) -> "Spend":
        """With one more call."""
        return Spend(
            calls=self.calls + 1,
            usage=self.usage + usage,
            priced_dollars=self.priced_dollars + (dollars or 0.0),
            unpriced=self.unpriced + (dollars is None),
        )

    def __add__(self, other: "Spend") -> "Spend":
        return Spend(
            calls=self.calls + other.calls,
            usage=self.usage + other.usage,
            priced_dollars=self.priced_dollars + other.priced_dollars,
            unpriced=self.unpriced + other.unpriced,
        )


class Cost(BaseModel):
    """The most that calls may cost. `dollars` is None if a price is unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    calls: int = 0
    tokens: int = 0
    dollars: float | None = 0.0

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
