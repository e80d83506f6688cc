"""What is assumed of rungs and planners before anything was tried, from a dated table and the prices of models."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from agents.models.cost.prices import Price, dollars
from fleet.core.base.usage import Usage
from fleet.core.plans.plan import Effort
from fleet.core.plans.rungs import Rung
from fleet.core.state.facts import CallTally

_FILE = Path(__file__).with_name("rung_priors.toml")


class _Lands(BaseModel):
    """The share of attempts that land, by effort."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    default: Effort
    """The effort of a model that is not told one."""
    low: float
    medium: float
    high: float
    xhigh: float
    max: float


class _Conversation(BaseModel):
    """What a conversation takes: seconds, calls, and the tokens of all of these together."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seconds: float
    calls: int
    tokens: Usage

    def dollars(self, model: str, prices: Mapping[str, Price]) -> float | None:
        """Each prompt is priced by itself: long ones may cost more."""
        tokens = {name: round(count / self.calls) for name, count in self.tokens.model_dump().items()}
        price = dollars(model, Usage(**tokens), prices)
        return None if price is None else price * self.calls


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    attempt: _Conversation
    """At high effort."""
    takes: dict[Effort, float]
    """The share of that which other efforts take."""
    lands: dict[str, _Lands]
    planner: dict[str, _Conversation]


@cache
def _table() -> _Table:
    return _Table.model_validate(tomllib.loads(_FILE.read_text(encoding="utf-8")))


def assumed_rung(model: str, effort: Effort | None, prices: Mapping[str, Price]) -> Rung:
    """The rung with what is assumed of it."""
    table = _table()
    lands = table.lands.get(model) or table.lands["other"]
    tries = effort or lands.default
    price = table.attempt.dollars(model, prices)
    return Rung(
        model=model,
        effort=effort,
        lands=getattr(lands, tries),
        dollars=None if price is None else round(price * table.takes[tries], 6),
        seconds=round(table.attempt.seconds * table.takes[tries], 1),
    )


def assumed_calls(model: str, prices: Mapping[str, Price]) -> tuple[CallTally, ...]:
    """What a first and a later call of the planner are assumed to take and cost."""
    calls = _table().planner
    return tuple(
        CallTally(
            model=model,
            first=name == "first",
            calls=1,
            seconds=calls[name].seconds,
            dollars=calls[name].dollars(model, prices),
        )
        for name in ("first", "later")
    )
