"""What calls to models used: tokens by kind, and dollars where the price is known."""

from pydantic import BaseModel, ConfigDict, Field


class Usage(BaseModel):
    """Tokens of one call, or of many. `input` leaves out what was read from or written to the cache."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: int = Field(default=0, ge=0)
    output: int = Field(default=0, ge=0)
    cache_read: int = Field(default=0, ge=0)
    cache_write: int = Field(default=0, ge=0)

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
        )

    @property
    def total(self) -> int:
        return self.input + self.output + self.cache_read + self.cache_write


class Spend(BaseModel):
    """Usage with its price. `unpriced` counts calls whose model has no known price: the sum is then unknown, not 0."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    calls: int = 0
    usage: Usage = Usage()
    priced_dollars: float = 0.0
    unpriced: int = 0

    @property
    def dollars(self) -> float | None:
        """The cost, or None where a part of it is unknown."""
        return None if self.unpriced else self.priced_dollars

    def plus(self, usage: Usage, dollars: float | None) -> "Spend":
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
    """What calls may cost at most. `dollars` None: nobody knows the price."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    calls: int = 0
    tokens: int = 0
    dollars: float | None = 0.0

    def of(self, unit: str) -> float:
        """As far as it counts against a limit in this unit."""
        return {"dollars": self.dollars or 0.0, "tokens": float(self.tokens)}.get(unit, 0.0)

    def __add__(self, other: "Cost") -> "Cost":
        known = self.dollars is not None and other.dollars is not None
        return Cost(
            calls=self.calls + other.calls,
            tokens=self.tokens + other.tokens,
            dollars=(self.dollars or 0.0) + (other.dollars or 0.0) if known else None,
        )


NOTHING = Cost()
