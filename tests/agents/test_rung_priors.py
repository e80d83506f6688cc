"""What is assumed of rungs agrees with the figures that were published."""

import pytest

from agents.models.cost.prices import Price
from agents.rung_priors import assumed_rung
from fleet.core.plans.rungs import EFFORTS, Ladder
from fleet.core.policy.ladder import rung_options

OPUS, HAIKU = "claude-opus-5-5", "claude-haiku-5-5"


def test_the_published_figures_are_met() -> None:
    """Rule: "opus at low, failures done again at high: 97 % for $0.17 a task; all at high: 95.3 % for $0.29"."""
    low, high = (assumed_rung(OPUS, effort, {}) for effort in ("low", "high"))
    assert high.dollars == pytest.approx(0.29, rel=0.05)
    assert high.lands == pytest.approx(0.953, abs=0.01)
    both = rung_options(Ladder(rungs=(low, high)), {}, "medium", attempts=2)[0]
    assert both.per_landed == pytest.approx(0.17 / 0.97, rel=0.1)


@pytest.mark.parametrize("model", [OPUS, "claude-sonnet-5-5", HAIKU, "own"])
def test_more_effort_lands_more_and_costs_more(model: str) -> None:
    price = {"own": Price(input=1.0, output=5.0)}
    rungs = [assumed_rung(model, effort, price) for effort in EFFORTS]
    assert [rung.lands for rung in rungs] == sorted(rung.lands for rung in rungs)
    costs = [rung.dollars or 0.0 for rung in rungs]
    assert costs == sorted(set(costs))


def test_a_model_that_is_not_told_an_effort_is_assumed_to_have_its_default() -> None:
    told, untold = assumed_rung(HAIKU, "medium", {}), assumed_rung(HAIKU, None, {})
    assert (told.lands, told.dollars) == (untold.lands, untold.dollars)
    assert (told.name, untold.name) == (f"{HAIKU} medium", HAIKU)


def test_what_an_unknown_model_costs_is_unknown() -> None:
    assert assumed_rung("own", "low", {}).dollars is None
