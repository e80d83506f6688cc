"""What workers will cost, in a line."""

from dashboards.text.plans.plan_review import forecast_lines
from fleet.core.policy.forecast import Forecast


def test_a_forecast_has_its_range_what_it_rests_on_and_what_it_leaves_out() -> None:
    assert forecast_lines(Forecast(median=1.5, ninth=2.25, seen=12, unknown=0)) == [
        "Workers: $1.50 expected, nine of ten runs at most $2.25 (rests on 12 earlier attempts; without the planner)"
    ]
    [assumed] = forecast_lines(Forecast(median=0.5, ninth=2.0, seen=0, unknown=1))
    assert "rests on assumptions alone; 1 subtask left out" in assumed
    assert forecast_lines(Forecast(median=0.0, ninth=0.0, seen=0, unknown=2)) == [
        "Workers: unknown, no model of theirs has a price"
    ]
