"""What is assumed of a rung before anything was tried, from a dated table and the prices of models."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from agents.models.cost.prices import Price, dollars
from fleet.core.base.usage import Usage
from fleet.core.plans.plan import Effort
from fleet.core.plans.rungs import Rung

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


class _Table(BaseModel):
    tokens: Usage
    """Of an attempt at high effort."""
    takes: dict[Effort, float]
    """The share of these that other efforts take."""
    lands: dict[str, _Lands]


@cache
def _table() -> _Table:
    return _Table.model_validate(tomllib.loads(_FILE.read_text(encoding="utf-8")))


def assumed_rung(model: str, effort: Effort | None, prices: Mapping[str, Price]) -> Rung:
    """The rung with what is assumed of it."""
    table = _table()
    lands = table.lands.get(model) or table.lands["other"]
    tries = effort or lands.default
    price = dollars(model, table.tokens, prices)
    return Rung(
        model=model,
        effort=effort,
        lands=getattr(lands, tries),
        dollars=None if price is None else round(price * table.takes[tries], 6),
    )
